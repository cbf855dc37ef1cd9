"""The widgets of the conversation and of the rows around it."""
