"""The machine below MLX: which device computes, which BLAS, whose turn it is, and faster products."""
