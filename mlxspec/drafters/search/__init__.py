"""How trees are grown from next-token probabilities: best-first, in beams, calibrated."""
