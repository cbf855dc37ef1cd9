"""Lossless speculative decoding on MLX: `load` a model, then `generate` or chat with it."""
