"""How far rows drift in each precision, and whether half precision overflows.

The default model is loaded again for each precision, and all tensors that are not quantised are
converted to it.
"""

import time as clocks
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.budget.cost import verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.loading import load_model
from mlxspec.measure.drift import NUM_ROWS, WIDTHS, Text, measure_drift
from mlxspec.measure.trial import PROMPTS
from mlxspec.report.allowance import Allowance, Finding
from mlxspec.report.shapes import DTYPES

_NUM_PROMPTS = 4  # enough text, and the same in every report
_NUM_FORWARDS = NUM_ROWS + sum(-(-NUM_ROWS // width) for width in WIDTHS)


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the figures of each precision."""
    for number, name in enumerate(DTYPES):
        yield name, _found(name, time.share(len(DTYPES) - number))


def _found(name: str, time: Allowance) -> dict[str, Any]:
    loaded = load_model()
    loaded.own.set_dtype(getattr(mx, name))
    target = Decoder(loaded.model)
    tokens = loaded.tokenizer.encode(" ".join(PROMPTS[:_NUM_PROMPTS]))
    prompt, rest = tokens[:NUM_ROWS], tokens[NUM_ROWS:]
    found = _extent(target, prompt)
    seconds = _seconds_of_a_row(target)
    if seconds * _NUM_FORWARDS > time.seconds_left:
        return {**found, "left_out": f"one row takes {seconds:.2g} s"}
    drift = measure_drift(target, [Text.of(prompt, rest, None)])
    flips = sum(width.num_flips for width in drift.widths)
    widths = {str(width.width): width.largest for width in drift.widths}
    return {
        **found,
        "largest": drift.largest,
        "near_tie": drift.near_tie,
        "smallest_gap": drift.smallest_gap,
        "flips": flips,
        "by_width": widths,
    }


def _extent(target: Decoder, prompt: list[int]) -> dict[str, Any]:
    """Return the largest number between layers, and whether states and logits are finite."""
    target.observe(prompt)
    _, entering = target.hidden_states(range(target.num_hidden_layers))
    states = np.array(mx.stack(entering).astype(mx.float32))
    logits = np.array(target.next_logits().astype(mx.float32))
    return {
        "is_finite": bool(np.isfinite(logits).all() and np.isfinite(states).all()),
        "largest_state": float(np.abs(states).max()),
    }


def _seconds_of_a_row(target: Decoder) -> float:
    verify = verify_forward(target)
    verify(1)
    began = clocks.perf_counter()
    verify(1)
    return clocks.perf_counter() - began
