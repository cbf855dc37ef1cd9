"""Compares a report with the assumptions of the code, line by line.

The assumptions come from development without a Mac. A line that differs shows where to look next.
A broken line shows that drafts change the output of a model: this is never acceptable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

from mlxspec.report.chips import CURVES, curve_of
from mlxspec.report.document import Report
from mlxspec.report.plan import BUFFER_NAMES
from mlxspec.report.shapes import (
    BITS,
    CONTEXTS,
    DTYPES,
    HEADS,
    KEYS,
    SIZES,
    attention_name,
    context_name,
    product_name,
)

Kind = Literal["as assumed", "differs", "not measured", "BROKEN"]

FIRST_FRAME_S = 0.25
NEAR_TIES = {"float32": 1e-3, "float16": 0.25, "bfloat16": 2.0}
"""Largest near-ties in logits: in half precision four drifts of four steps, at logits up to 32."""

_FALL = 0.1  # share by which a cost may fall with more rows: timings are noisy
_NEAR = 0.25  # share by which a ratio may differ from the published one
_WORKING_SET = (0.6, 0.85)  # share of the memory for the GPU; the code assumes 0.7
_CHIP_SIZE = (4, 4096, 4096)  # bits, width and height of the product in the published tables
_SLOWER = 1.05  # a difference of 5 % is noise


@dataclass(frozen=True)
class Line:
    """One assumption with its figures, compared with a report."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind:<14}{self.text}"


def compare(report: Report) -> list[Line]:
    """Return a line for every assumption; raises `ReportError` if the report is damaged."""
    parts = (_parts, _device, _first_frame, _lossless, _replies, _drift, _costs, _chip, _buffers)
    return [line for part in parts for line in part(report)]


def is_lossless(lines: Sequence[Line]) -> bool:
    """Return whether no line shows that drafts change the output of a model."""
    return all(line.kind != "BROKEN" for line in lines)


def _judged(text: str, is_assumed: bool | None) -> Line:
    if is_assumed is None:
        return Line("not measured", text)
    return Line("as assumed" if is_assumed else "differs", text)


def _parts(report: Report) -> Iterator[Line]:
    for name, record in report.records.items():
        if record.status != "done":
            reason = f" ({record.reason})" if record.reason else ""
            yield Line("not measured", f"{name}, or not all of it: {record.status}{reason}")


def _device(report: Report) -> Iterator[Line]:
    backend, device = report.text("machine", "backend"), report.text("machine", "device")
    if backend != "metal":
        yield Line(
            "not measured", f"a Mac's GPU: this is {backend or 'nothing'} on {device or '?'}"
        )
    size = report.number("machine", "max_recommended_working_set_size_gb")
    memory = report.number("machine", "memory_gb")
    if size is None or not memory:
        yield Line("not measured", "what a GPU may use of the memory")
        return
    low, high = _WORKING_SET
    text = f"a GPU may use {size / memory:.0%} of {memory:.0f} GB ({low:.0%} to {high:.0%})"
    yield _judged(text, low <= size / memory <= high)


def _first_frame(report: Report) -> Iterator[Line]:
    took = report.number("first_frame", "median_s")
    text = f"the app's first frame comes within {FIRST_FRAME_S:g} s"
    if took is None:
        yield Line("not measured", text)
    else:
        yield _judged(f"{text}: {took:.2f} s", took <= FIRST_FRAME_S)


def _lossless(report: Report) -> Iterator[Line]:
    words = report.text("lossless", "verdict_text")
    if report.text("lossless", "verdict"):
        is_broken = report.text("lossless", "verdict") == "not lossless"
        yield Line("BROKEN" if is_broken else "as assumed", words)
        return
    yield Line("not measured", "whether drafts change the output: there is no verdict")
    for name in report.group("lossless", "greedy", "drafters"):
        place = ("lossless", "greedy", "drafters", name)
        yield _agreement(report, place, f"{name}, drafting in every round")


def _replies(report: Report) -> Iterator[Line]:
    plain = report.number("replies", "plain", "tokens_per_s")
    if plain is None:
        yield Line("not measured", "replies")
    for name in report.group("replies"):
        if name == "plain":
            continue
        place = ("replies", name)
        yield _agreement(report, place, f"{name}, drafting as much as pays")
        speed = report.number(*place, "tokens_per_s")
        if plain and speed is not None:
            text = (
                f"{name} is no slower than plain decoding: {speed / plain:.2f} times its tokens/s"
            )
            yield _judged(text, speed * _SLOWER >= plain)


def _agreement(report: Report, place: tuple[str, ...], who: str) -> Line:
    replies, same = report.number(*place, "replies"), report.number(*place, "the_same")
    if replies is None or same is None:
        return Line("not measured", f"whether replies of {who}, are plain ones")
    text = f"replies of {who}, are plain ones: {same:.0f} of {replies:.0f}"
    if same == replies:
        return Line("as assumed", text)
    gaps = _gaps(report, place)
    near_tie = report.number("lossless", "greedy", "near_tie")
    if not gaps or len(gaps) != replies - same:
        return Line("BROKEN", f"{text}; one of two ends before the other")
    text += f", the others differ at gaps of up to {max(gaps):.2g} (logits)"
    if near_tie is None:
        return Line("not measured", f"{text}; what rounding explains was not measured")
    return Line(
        "as assumed" if 0 < near_tie >= max(gaps) else "BROKEN",
        f"{text}, where rounding explains {near_tie:.2g}",
    )


def _gaps(report: Report, place: tuple[str, ...]) -> list[float]:
    """Return all gaps; an empty list if one is missing because a reply ended there."""
    found = report.value(*place, "gaps")
    is_short = isinstance(found, list) and None in found
    return [] if is_short else report.numbers(*place, "gaps")


def _drift(report: Report) -> Iterator[Line]:
    for dtype in DTYPES:
        is_finite = report.value("drift", dtype, "is_finite")
        state = report.number("drift", dtype, "largest_state")
        text = f"{dtype} holds the numbers of the default model"
        if is_finite is None:
            yield Line("not measured", text)
        else:
            extent = "" if state is None else f": {state:,.0f} at most between layers"
            yield _judged(text + extent, is_finite is True)
        near_tie = report.number("drift", dtype, "near_tie")
        text = f"gaps that are near-ties in {dtype}"
        if near_tie is None:
            reason = report.text("drift", dtype, "left_out")
            yield Line("not measured", text + (f": {reason}" if reason else ""))
        else:
            most = NEAR_TIES[dtype]
            yield _judged(f"{text} are at most {most:g}: {near_tie:.2g}", near_tie <= most)


def _costs(report: Report) -> Iterator[Line]:
    forwards = [("forwards", context_name(count)) for count in CONTEXTS]
    products = [("products", product_name(bits, *size)) for size, bits in product(SIZES, BITS)]
    attention = [
        ("attention", attention_name(heads, keys, has_mask=has_mask))
        for heads, keys, has_mask in product(HEADS, KEYS, (True, False))
    ]
    for places in (forwards, products, attention):
        curves = {place: report.curve(*place) for place in places}
        timed = {place: curve for place, curve in curves.items() if len(curve) > 1}
        yield from (_rising(f"{' '.join(place)}", curve) for place, curve in timed.items())
        if len(timed) < len(curves):
            missing = len(curves) - len(timed)
            yield Line("not measured", f"{missing} of {len(curves)} curves of {places[0][0]}")


def _rising(name: str, curve: Mapping[int, float]) -> Line:
    """Return a line on whether more rows cost more, with the costs relative to one row."""
    falls = [
        f"{above} rows less than {below}"
        for below, above in pairwise(curve)
        if curve[above] < curve[below] * (1 - _FALL)
    ]
    ratios = "  ".join(f"{rows}: {ms / curve[1]:.2f}" for rows, ms in curve.items())
    text = f"{name}: more rows cost more{' (' + ', '.join(falls) + ')' if falls else ''}: {ratios}"
    return _judged(text, not falls)


def _chip(report: Report) -> Iterator[Line]:
    device = report.text("machine", "device")
    name = curve_of(device)
    measured = report.curve("products", product_name(*_CHIP_SIZE))
    text = f"{product_name(*_CHIP_SIZE)} costs by rows what was published"
    if not name or report.text("machine", "backend") != "metal":
        yield Line("not measured", f"{text}: {device or 'this machine'} is in no table")
        return
    shared = [rows for rows in CURVES[name] if rows in measured and rows > 1]
    if not shared:
        yield Line("not measured", f"{text}, {name}")
    for rows in shared:
        ratio, published = measured[rows] / measured[1], CURVES[name][rows]
        words = f"{text}, {name}: {rows} rows {ratio:.2f}, published {published:.2f}"
        yield _judged(words, abs(ratio - published) <= _NEAR * published)


def _buffers(report: Report) -> Iterator[Line]:
    own = report.curve("forwards", context_name(CONTEXTS[0]))
    others = {name: report.curve(name, context_name(CONTEXTS[0])) for name in BUFFER_NAMES}
    timed = {name: curve[1] for name, curve in others.items() if curve}
    if not own or not timed:
        yield Line("not measured", "which size of command buffers is fastest")
        return
    best = min(timed, key=timed.__getitem__)
    text = (
        f"the size of command buffers in force is as fast as any: a row takes {own[1]:.2f} ms, "
        f"{timed[best]:.2f} in {best}"
    )
    yield _judged(text, own[1] <= _SLOWER * timed[best])
