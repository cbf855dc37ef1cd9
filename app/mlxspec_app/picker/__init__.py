"""What the model picker shows of models, drafters and the machine."""
