"""Recordings: timeline, replay, race and comparison."""
