"""The target: a model, its cache and its token history, always consistent."""
