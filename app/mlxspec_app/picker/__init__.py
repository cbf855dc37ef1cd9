"""Contents of the model picker: models, drafters and the machine."""
