"""Measures the cost of the default model's forwards by their rows, and the model's memory."""

import os
import time as clocks
from collections.abc import Iterator

import mlx.core as mx

from mlxspec.budget.cost import fastest_times, verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend, memory
from mlxspec.loading import load_model
from mlxspec.report.allowance import Allowance, Finding, curve_dict
from mlxspec.report.shapes import CONTEXTS, ROWS, context_name

_TURNS = 8


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the cost curves after a short and a longer text."""
    began = clocks.perf_counter()
    loaded = load_model()
    yield "load_s", clocks.perf_counter() - began
    yield "weights", loaded.weights
    yield "weights_gb", loaded.model.nbytes / backend.GB
    yield "operations_a_buffer", os.environ.get("MLX_MAX_OPS_PER_BUFFER", "")
    decoder = Decoder(loaded.model)
    for number, context in enumerate(CONTEXTS):
        if time.is_over:
            return
        share = time.share(len(CONTEXTS) - number)
        decoder.observe([0] * (context - len(decoder)))
        curve = fastest_times(verify_forward(decoder), ROWS * _TURNS, seconds=share.seconds_left)
        yield context_name(context), curve_dict(curve)
    yield "active_memory_gb", mx.get_active_memory() / backend.GB
    yield "peak_memory_gb", memory.peak_memory_gb()
