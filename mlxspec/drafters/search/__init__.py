"""Search: trees from next-token probabilities, best-first or by beams, and their calibration."""
