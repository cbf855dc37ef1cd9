"""What is measured: a module each, whose `measure` yields findings as it has them."""
