"""PyTorch's own files, read without PyTorch and without running the pickle."""
