"""What happens on a screen, one concern a class, each of which works without Textual."""
