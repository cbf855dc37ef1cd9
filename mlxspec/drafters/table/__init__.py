"""The table drafter: the target's own probabilities after one, two, three tokens."""
