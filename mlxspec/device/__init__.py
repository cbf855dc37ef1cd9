"""The machine below MLX: its device, its BLAS, whose turn it is, and what computes best on it."""
