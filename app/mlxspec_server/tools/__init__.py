"""Tools: which ones a model may or must call, and how it writes and we read calls."""
