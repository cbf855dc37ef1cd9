"""Where models lie, and how one gets there: hub ids, folders, the default model."""
