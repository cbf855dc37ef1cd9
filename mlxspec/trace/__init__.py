"""What happened, as frozen records: counted, written to a file and read again, without MLX."""
