"""What a recorded chat can be turned into: a page, a picture, a film, a text, a table."""
