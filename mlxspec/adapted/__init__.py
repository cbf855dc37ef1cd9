"""Models of mlx-lm as targets: their own code, run over draft trees without a change to it."""
