"""The keys: one table a screen, the choices of the user, and how keys are written."""
