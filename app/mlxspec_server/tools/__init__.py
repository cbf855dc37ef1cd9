"""Tools: which a model may or must call, how it writes a call, and calls in its text."""
