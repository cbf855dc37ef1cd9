"""Models of mlx-lm as targets: their own code runs over draft trees, unchanged."""
