"""Recordings: timeline, replay, race, comparison and what-if."""
