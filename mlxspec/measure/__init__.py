"""Measurements of replies: the first difference of two replies, the drift of rows, short trials."""
