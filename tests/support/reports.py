"""A report as a Mac would send it, with invented figures."""

import json
from copy import deepcopy

from mlxspec.report.chips import CURVES
from mlxspec.report.document import FORMAT, VERSION, Record
from mlxspec.report.plan import BUFFER_NAMES, parts_for
from mlxspec.report.shapes import (
    BITS,
    CONTEXTS,
    HEADS,
    KEYS,
    SIZES,
    attention_name,
    context_name,
    product_name,
)

RISING = {"rows": [1, 2, 4, 8, 16, 32], "ms": [2.0, 2.1, 2.5, 3.5, 5.0, 9.0]}
M4 = CURVES["M4 Pro (mlx #3839)"]
AGREED = {"replies": 3, "the_same": 3, "gaps": [], "faults": 0, "drafted": 90, "accepted": 40}

FOUND = {
    "machine": {
        "device": "Apple M4 Pro",
        "backend": "metal",
        "system": "Darwin 24.1.0 arm64",
        "memory_gb": 25.8,
        "max_recommended_working_set_size_gb": 18.5,
    },
    "first_frame": {"runs": 9, "median_s": 0.16},
    "forwards": {context_name(count): RISING for count in CONTEXTS},
    "replies": {
        "plain": {"replies": 3, "tokens_per_s": 200.0},
        "pool": {**AGREED, "tokens_per_s": 300.0},
    },
    "lossless": {
        "greedy": {"near_tie": 0.004, "drafters": {"pool": AGREED}},
        "verdict": "near-ties",
        "verdict_text": "identical up to near-ties of at most 0.002 (logits)",
    },
    "drift": {
        "float32": {"is_finite": True, "largest_state": 27347.0, "near_tie": 2e-4},
        "float16": {"is_finite": True, "largest_state": 27344.0, "near_tie": 0.1},
        "bfloat16": {"is_finite": True, "largest_state": 27392.0, "near_tie": 0.9},
    },
    "products": {
        **{product_name(bits, *size): RISING for bits in BITS for size in SIZES},
        product_name(4, 4096, 4096): {
            "rows": list(M4),
            "ms": [0.5 * ratio for ratio in M4.values()],
        },
    },
    "attention": {
        attention_name(heads, keys, has_mask=has_mask): RISING
        for heads in HEADS
        for keys in KEYS
        for has_mask in (True, False)
    },
    **{name: {context_name(256): {"rows": [1], "ms": [2.0]}} for name in BUFFER_NAMES},
}


def sound_records():
    """The records of a report that confirms all assumptions."""
    found = deepcopy(FOUND)
    return {
        part.name: Record("done", 12.5, "", found[part.name]) for part in parts_for(is_mac=True)
    }


def save_report(path, content):
    """Write a file that claims to be a report, with these parts."""
    path.write_text(json.dumps({"format": FORMAT, "version": VERSION, "parts": content}))
    return path
