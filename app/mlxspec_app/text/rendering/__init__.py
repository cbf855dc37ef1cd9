"""Markdown as it is read: marks become looks, and characters keep their place in the source."""
