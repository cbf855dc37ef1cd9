"""Measures drafters against plain decoding and against other projects, in one process."""
