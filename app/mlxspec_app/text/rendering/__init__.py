"""Rendered Markdown: marks become looks, and characters keep their position in the source."""
