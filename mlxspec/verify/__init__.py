"""Lossless verification: from logits to the target's distribution, and the rules that keep it."""
