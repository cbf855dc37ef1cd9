"""Find and download models: hub ids, folders, the default model."""
