"""The shapes that are timed, and the names of their figures in the file."""

ROWS = (1, 2, 4, 8, 16, 32, 3, 5, 6, 12, 24)
"""First the widths that show the shape of a curve, then those where kernels change their block."""

BITS = (4, 8, 16)
SIZES = ((576, 576), (576, 1536), (576, 49152), (4096, 4096), (4096, 11008), (4096, 32000))
"""Input and output sizes of matrices: of the default model, and of one with 7 billion weights."""

HEADS = {"9 of 64": (9, 3, 64), "32 of 128": (32, 8, 128)}
"""Query heads, key heads and head size: of the default model, and of one with 7 billion weights."""

KEYS = (1024, 8192)
CONTEXTS = (256, 2048)
DTYPES = ("float32", "float16", "bfloat16")


def product_name(bits: int, width: int, height: int) -> str:
    """Return the name of the curve of a product."""
    return f"{bits}-bit {width}x{height}"


def attention_name(heads: str, num_keys: int, *, has_mask: bool) -> str:
    """Return the name of the curve of attention over `num_keys` keys."""
    return f"{heads}, {num_keys} keys, {'an array' if has_mask else 'no mask'}"


def context_name(num_tokens: int) -> str:
    """Return the name of the curve of forwards after `num_tokens` tokens."""
    return f"behind {num_tokens} tokens"
