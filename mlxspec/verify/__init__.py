"""The lossless part: from logits to the target's distribution, and the rules that keep it."""
