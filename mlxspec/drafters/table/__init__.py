"""The table drafter: the target's own probabilities after the last one, two and three tokens."""
