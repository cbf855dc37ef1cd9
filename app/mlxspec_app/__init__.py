"""The Textual app: a chat that shows speculative decoding as it happens."""
