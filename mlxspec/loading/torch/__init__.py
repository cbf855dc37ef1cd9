"""Read PyTorch's own files, without PyTorch and without executing the pickle."""
