"""Recordings: laid out in time, replayed, raced and compared."""
