"""Exports of a recorded chat: a page, a picture, a film, a text, a table."""
