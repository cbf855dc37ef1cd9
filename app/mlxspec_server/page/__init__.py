"""The live page: what the server writes now, and a prompt to ask it, in one file."""
