"""Many replies at once: one forward of the target per round for all replies of a batch."""
