"""A chat over an engine: its messages, their prompt, and the cache kept from turn to turn."""
