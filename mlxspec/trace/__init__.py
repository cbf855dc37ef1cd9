"""What happened, as frozen records: told, counted, written to a file and read again, without MLX."""
