"""Text for the screen: wrapped, styled as Markdown, without harmful characters."""
