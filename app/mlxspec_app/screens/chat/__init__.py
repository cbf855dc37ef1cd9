"""The chat screen, and what happens on it, one concern a file."""
