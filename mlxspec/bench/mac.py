"""What only a Mac can tell: measurements, each with the assumptions of the code that it tests.

No measurement collects a name, a path or an address.
"""

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise, product
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec import __version__
from mlxspec.bench.arms import PLAIN, drafters_here, own_arms
from mlxspec.bench.mac_file import Finding, Kind, Line, judged
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.bench.report import arm_figures
from mlxspec.bench.run import Plan, Row, Runner, version_of
from mlxspec.bench.verify import Plan as Check
from mlxspec.bench.verify import check
from mlxspec.budget import CostCurve
from mlxspec.budget.cost import STEPS, fastest_times, verify_forward
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend, chips, core_split, memory
from mlxspec.device.attention import attend
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.errors import Say
from mlxspec.loading import load_model
from mlxspec.measure.drift import NUM_ROWS, Text, measure_drift
from mlxspec.measure.tables import as_json
from mlxspec.measure.trial import PROMPTS
from mlxspec.params import GenerationParams, Options

NEAR_TIES = {"float32": 1e-3, "float16": 0.25, "bfloat16": 2.0}
"""Largest near-ties in logits: in half precision four drifts of four steps, at logits up to 32."""

FIRST_FRAME_S = 0.25
ROWS = (*STEPS, 6)
"""The ends of the steps of a curve, the most telling first, and the first row after one."""

BITS = (4, 8, 16)
SIZES = ((576, 576), (576, 1536), (576, 49152), (4096, 4096), (4096, 11008), (4096, 32000))
"""Input and output sizes of matrices: of the default model, and of one with 7 billion weights."""

HEADS = {"9 of 64": (9, 3, 64), "32 of 128": (32, 8, 128)}
"""Query heads, key heads and head size: of the default model, and of one with 7 billion weights."""

KEYS = (1024, 8192)
CONTEXTS = (256, 2048)
_SECONDS, _TURNS = 3.0, 8  # for one curve
_FALL = 0.1  # share by which a cost may fall with more rows: timings are noisy
_NEAR = 0.25  # share by which a ratio may differ from the published one
_SLOWER = 1.05  # a difference of 5 % is noise
_WORKING_SET = (0.6, 0.85)  # share of the memory for the GPU; the code assumes 0.7
_GROUP_SIZE = 64
_BYTES, _MOST_MATRICES = 48_000_000, 24  # of the matrices that take turns
_LAYERS = 4  # layers with their own keys and values, which take turns
_MAX_TOKENS = 48  # of a reply
_NUM_NODES, _NUM_DRAWS = (4, 12), 200
_SETTINGS = ("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER", "MLX_ENABLE_TF32", "MLXSPEC_WIRED")

Timed = tuple[str, Callable[[int], None], int]
"""A name, a forward of some rows, and how many equal things it computes."""


def collect(
    measurements: Mapping[str, Callable[[], Finding]],
    save: Callable[[Mapping[str, Finding]], None],
    say: Say,
) -> dict[str, Finding]:
    """Run measurements one after the other; one that fails is told, and stops no other.

    The findings so far are saved after each: a crash of MLX loses only what was not measured yet.
    """
    found: dict[str, Finding] = {}
    for number, (name, measure) in enumerate(measurements.items(), 1):
        say(f"{number} of {len(measurements)}: {name}")
        try:
            found[name] = measure()
        except Exception as error:  # an error in one must not lose the others
            say(f"{name} is not measured: {error}")
            # its message may hold a path, so the file has only its kind
            found[name] = Finding({}, (Line("not measured", f"{name}: {type(error).__name__}"),))
        save(found)
    return found


def machine() -> Finding:
    """Return chip, system, memory, libraries and the settings in force."""
    facts, told = backend.facts(), mx.device_info()
    figures = {name: value for name, value in asdict(facts).items() if name != "notes"} | {
        "mlxspec": __version__,
        "macos": platform.mac_ver()[0],
        "architecture": str(told.get("architecture", "")),
        "packages": {name: version_of(name) for name in ("mlx-lm", "numpy", "textual")},
        "core_split": core_split.count(),
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "is_on_battery": _is_on_battery(),
    }
    lines = []
    if facts.backend != "metal":
        text = f"a Mac's GPU: this is {facts.backend} on {facts.device}"
        lines.append(Line("not measured", text))
    if size := told.get("max_recommended_working_set_size"):
        figures["working_set_gb"] = float(size) / backend.GB
        share, (low, high) = figures["working_set_gb"] / facts.memory_gb, _WORKING_SET
        text = f"a GPU may use {share:.0%} of {facts.memory_gb:.0f} GB ({low:.0%} to {high:.0%})"
        lines.append(judged(text, low <= share <= high))
    return Finding(figures, tuple(lines))


def _is_on_battery() -> bool:
    try:
        told = subprocess.check_output(["pmset", "-g", "batt"], text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return False
    return "Battery Power" in told.partition("\n")[0]


# ---- the cost of rows --------------------------------------------------------------------------


def forwards() -> Finding:
    """Return the cost of the default model's forwards by their rows, and the model's memory."""
    loaded = load_model()
    decoder = Decoder(loaded.model)

    def timed() -> Iterator[Timed]:
        for context in CONTEXTS:
            decoder.observe([0] * (context - len(decoder)))
            yield f"forwards after {context} tokens", verify_forward(decoder), 1

    found = costs(timed())
    more = {
        "weights": loaded.weights,
        "weights_gb": loaded.model.nbytes / backend.GB,
        "peak_memory_gb": memory.peak_memory_gb(),
    }
    return Finding({**found.figures, **more}, found.lines)


def products() -> Iterator[Timed]:
    """Yield products of several matrices that take turns, as in a model."""
    for (width, height), bits in product(SIZES, BITS):
        fitting = max(_BYTES // (bits * width * height // 8), 1)
        count = 1 if backend.is_cpu() else min(fitting, _MOST_MATRICES)
        multiply = [_product(bits, width, height) for _ in range(count)]
        rows = mx.random.normal((max(ROWS), width)).astype(mx.float16)
        mx.eval(rows)

        def forward(num_rows: int, multiply: Any = multiply, rows: mx.array = rows) -> None:
            backend.sync(*(one(rows[:num_rows]) for one in multiply))

        yield f"{bits}-bit {width}x{height}", forward, count


def _product(bits: int, width: int, height: int) -> Callable[[mx.array], mx.array]:
    matrix = mx.random.normal((height, width)).astype(mx.float16)
    if bits == 16:
        mx.eval(matrix)
        return lambda rows: rows @ matrix.T
    packed, scales, biases = mx.quantize(matrix, group_size=_GROUP_SIZE, bits=bits)
    mx.eval(packed, scales, biases)
    return lambda rows: mx.quantized_matmul(
        rows, packed, scales, biases, transpose=True, group_size=_GROUP_SIZE, bits=bits
    )


def attention() -> Iterator[Timed]:
    """Yield attention with an array as mask, which a draft tree has, and without a mask."""
    dtype = mx.float32 if backend.is_cpu() else mx.float16  # the dtypes that models use

    def noise(*shape: int) -> mx.array:
        return mx.random.normal((1, *shape)).astype(dtype)

    for (name, (n_heads, n_kv_heads, dim)), keys, has_mask in product(
        HEADS.items(), KEYS, (True, False)
    ):
        queries = noise(n_heads, max(ROWS), dim)
        layers = [tuple(noise(n_kv_heads, keys, dim) for _ in "kv") for _ in range(_LAYERS)]
        shown = mx.arange(keys - max(ROWS), keys)[:, None] >= mx.arange(keys)
        mx.eval(queries, layers, shown)

        def forward(
            num_rows: int,
            queries: mx.array = queries,
            layers: Any = layers,
            shown: mx.array | None = shown if has_mask else None,
        ) -> None:
            mask = None if shown is None else shown[:num_rows]
            asked, scale = queries[:, :, :num_rows], queries.shape[-1] ** -0.5
            backend.sync(*(attend(asked, k, v, scale=scale, mask=mask) for k, v in layers))

        yield f"{name}, {keys} keys, {'an array' if has_mask else 'no mask'}", forward, _LAYERS


def costs(timed: Iterable[Timed]) -> Finding:
    """Return milliseconds by rows for each, and whether more rows cost more."""
    figures: dict[str, Any] = {}
    lines: list[Line] = []
    for name, forward, count in timed:
        curve = fastest_times(forward, ROWS * _TURNS, seconds=_SECONDS)
        figures[name] = {rows: ms / count for rows, ms in curve.ms.items()}
        lines += [rising(name, curve), *published(name, curve, backend.facts().device)]
    return Finding(figures, tuple(lines))


def rising(name: str, curve: CostCurve) -> Line:
    """Return a line on whether more rows cost more, with the costs relative to one row."""
    falls = [
        f"{above} rows less than {below}"
        for below, above in pairwise(curve.ms)
        if curve.ms[above] < curve.ms[below] * (1 - _FALL)
    ]
    ratios = "  ".join(f"{r}: {ratio:.2f}" for r, ratio in zip(curve.ms, curve.ratios, strict=True))
    less = f" ({', '.join(falls)})" if falls else ""
    return judged(f"{name}: more rows cost more{less}: {ratios}", not falls)


def published(name: str, curve: CostCurve, device: str) -> list[Line]:
    """Return lines that compare a large product with what was published of this chip."""
    chip = chips.chip_of(device)
    steps = chip.steps("4-bit") if chip else None
    if name != "4-bit 4096x11008" or steps is None:
        return []
    own = {rows: ms / curve.ms[1] for rows, ms in curve.ms.items() if rows > 1}
    return [
        judged(
            f"{name}, {steps.source}: {rows} rows cost {own[rows]:.2f}, published {ratio:.2f}",
            abs(own[rows] - ratio) <= _NEAR * ratio,
        )
        for rows, ratio in steps.costs.items()
        if rows in own
    ]


# ---- replies -----------------------------------------------------------------------------------


def replies() -> Finding:
    """Return a few replies of every drafter: speed, acceptance, agreement with plain decoding."""
    params = GenerationParams(max_tokens=_MAX_TOKENS)
    context = make_drafter_context(load_model(), Options(), lambda line: None)
    context.engine.measure_costs()
    arms = own_arms([PLAIN, *drafters_here(context)], context)
    questions = choose_questions(read_questions(), limit=1)
    chosen = [*questions[:2], questions[-1]]  # the reply to the last one copies its text
    runner = Runner(context.engine, arms, PLAIN)
    runner.warm_up(params, lambda name: None)
    cases = enumerate(Plan(chosen, [0.0], 1, params).cases)
    rows = [row for number, case in cases for row in runner.rows(case, number, params)]
    plain, *drafted = (arm_figures(rows, arm.name, PLAIN) for arm in arms)
    lines = []
    for found in drafted:
        lines.append(agreement(found.arm, [row for row in rows if row.arm == found.arm]))
        if plain.tokens_per_s and found.tokens_per_s is not None:
            ratio = found.tokens_per_s / plain.tokens_per_s
            text = f"{found.arm} is no slower than plain decoding: {ratio:.2f} times its tokens/s"
            lines.append(judged(text, ratio * _SLOWER >= 1))
    return Finding({found.arm: found for found in (plain, *drafted)}, tuple(lines))


def agreement(arm: str, rows: Sequence[Row]) -> Line:
    """Return a line on the greedy replies of an arm, compared with the plain ones."""
    found = [difference for row in rows for difference in row.differences if difference]
    total = sum(len(row.replies) for row in rows)
    is_sound = all(difference.is_near_tie for difference in found)
    where = "".join(f"; {difference.describe()}" for difference in found)
    text = f"replies of {arm} are plain ones: {total - len(found)} of {total}{where}"
    return Line("as assumed" if is_sound else "BROKEN", text)


def lossless() -> Finding:
    """Return what `mlxspec verify` finds with a full cache."""
    questions = choose_questions(read_questions(), limit=1)
    plan = Check(questions, [Options()], (), _NUM_NODES, _MAX_TOKENS, _NUM_DRAWS)
    result = check(load_model(), plan, lambda line: None, lambda items, doing: items)
    figures = as_json(result)
    figures["faults"] = len(result.faults)
    for found in (found for cache in figures["caches"] for found in cache["agreements"]):
        found["faults"] = len(found["faults"])  # an error may hold a path
    kind: Kind = "as assumed" if result.is_lossless else "BROKEN"
    return Finding(figures, (Line(kind, result.verdict_text),))


def drift() -> Finding:
    """Return how far rows drift in each precision, and whether half precision overflows."""
    figures, lines = {}, []
    for name, most in NEAR_TIES.items():
        loaded = load_model()  # again, because tensors that are not quantised are converted
        loaded.own.set_dtype(getattr(mx, name))
        tokens = loaded.tokenizer.encode(" ".join(PROMPTS[:4]))
        target = Decoder(loaded.model)
        state = _largest_state(target, tokens[:NUM_ROWS])
        found = measure_drift(target, [Text.of(tokens[:NUM_ROWS], tokens[NUM_ROWS:], None)])
        figures[name] = {"largest_state": state, "drift": found}
        holds = f"{name} holds the default model's numbers: {state:,.0f} at most between layers"
        gaps = f"gaps that are near-ties in {name} are at most {most:g}: {found.near_tie:.2g}"
        lines += [judged(holds, bool(np.isfinite(state))), judged(gaps, found.near_tie <= most)]
    return Finding(figures, tuple(lines))


def _largest_state(target: Decoder, prompt: Sequence[int]) -> float:
    """Return the largest number between layers; not finite if a state or a logit is not."""
    target.observe(prompt)
    _, entering = target.hidden_states(range(target.num_hidden_layers))
    states = np.array(mx.stack(entering).astype(mx.float32))
    logits = np.array(target.next_logits().astype(mx.float32))
    return float(np.abs(states).max()) if np.isfinite(logits).all() else float("nan")


def first_frame(measure: Callable[[], float]) -> Finding:
    """Return the seconds to the app's first frame, which `measure` returns."""
    took = measure()
    text = f"the app's first frame comes within {FIRST_FRAME_S:g} s: {took:.2f} s"
    return Finding({"median_s": took}, (judged(text, took <= FIRST_FRAME_S),))


def measurements(first_frame_s: Callable[[], float]) -> dict[str, Callable[[], Finding]]:
    """Return all measurements by name; `first_frame_s` measures the app, which stands above."""
    return {
        "the machine": machine,
        "the app's first frame": partial(first_frame, first_frame_s),
        "forwards of the default model": forwards,
        "replies of every drafter": replies,
        "whether drafts change the output": lossless,
        "rounding in each precision": drift,
        "products of 1 to 32 rows": lambda: costs(products()),
        "attention of 1 to 32 rows": lambda: costs(attention()),
    }
