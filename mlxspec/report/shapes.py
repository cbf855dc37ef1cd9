"""What is timed, and what its figures are called in the file."""

ROWS = (1, 2, 4, 8, 16, 32, 3, 5, 6, 12, 24)
"""First what shows the shape of a curve, then where kernels have their edges."""

BITS = (4, 8, 16)
SIZES = ((576, 576), (576, 1536), (576, 49152), (4096, 4096), (4096, 11008), (4096, 32000))
"""Rows of a matrix go in and come out: layers of the default model, and of one of 7 billion."""

HEADS = {"9 of 64": (9, 3, 64), "32 of 128": (32, 8, 128)}
"""Heads, heads of keys and their size: those of the default model, and of one of 7 billion."""

KEYS = (1024, 8192)
CONTEXTS = (256, 2048)
DTYPES = ("float32", "float16", "bfloat16")


def product_name(bits: int, width: int, height: int) -> str:
    """Return what the curve of a product is called."""
    return f"{bits}-bit {width}x{height}"


def attention_name(heads: str, num_keys: int, *, has_mask: bool) -> str:
    """Return what the curve of attention over so many keys is called."""
    return f"{heads}, {num_keys} keys, {'an array' if has_mask else 'no mask'}"


def context_name(num_tokens: int) -> str:
    """Return what the curve of forwards behind so many tokens is called."""
    return f"behind {num_tokens} tokens"
