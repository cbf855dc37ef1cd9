"""Events: frozen records of a generation, their statistics and the trace file, without MLX."""
