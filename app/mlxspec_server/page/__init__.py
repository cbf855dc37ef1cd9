"""The live page, one file: what the server writes now, and a prompt to send."""
