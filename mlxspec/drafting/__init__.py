"""Chooses and builds the drafter: from a word, a file or a measurement."""
