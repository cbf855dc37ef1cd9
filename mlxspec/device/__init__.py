"""The machine below MLX: its device, its BLAS, turns of threads, and its fastest operations."""
