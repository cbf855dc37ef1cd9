"""Text and signs, made ready to be drawn: wrapped, marked up, harmless."""
