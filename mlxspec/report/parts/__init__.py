"""The measurements, one module each; its `measure` yields findings as soon as it has them."""
