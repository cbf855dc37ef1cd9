"""Measurements of replies: where two replies differ first, how far rows drift, short trials."""
