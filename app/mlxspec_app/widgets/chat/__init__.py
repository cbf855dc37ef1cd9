"""The widgets of the conversation and of the lines around it."""
