"""Rows of the picker: styled text from the records of models and drafters."""

from textual.content import Content

from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec_app.conversation.events import TableProgress
from mlxspec_app.conversation.figures import count, loading_words
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.catalogue import Fetching, gigabytes
from mlxspec_app.text.bars import meter
from mlxspec_app.text.safe_text import safe_line

_MUTED, _PLAIN, _WARN = "$spec-muted", "$foreground", "$spec-corrected"
_BAD, _GOOD = "$spec-rejected", "$spec-accepted"
_NEW_LINE = Content("\n")
_METER_CELLS = 6
_EXACT_BELOW = 10  # tokens/s below this are shown with one decimal
_SIGNS = {"fits": ("✓", _GOOD), "tight": ("!", _WARN), "too large": ("✗", _BAD)}
_FITS = {
    "fits": "fits",
    "tight": "is a tight fit: other programs may be pushed out of memory",
    "too large": "does not fit: it may be refused, or stall the machine",
}


def model_row(model: ModelEntry, memory_gb: float, *, is_current: bool) -> Content:
    """Return the two rows of a model; `is_current` marks the loaded one."""
    mark = ("● ", _GOOD) if is_current else ("  ", _MUTED)
    if model.problem:
        facts = Content.assemble(("  ✗ ", _BAD), (safe_line(model.problem), _MUTED))
        return _NEW_LINE.join([Content.assemble(mark, (safe_line(model.name), _MUTED)), facts])
    name = Content.assemble(mark, (safe_line(model.name), f"{_PLAIN} bold"))
    if not model.is_here:
        return _NEW_LINE.join([name, Content.assemble("  ", *_offer(model, memory_gb))])
    sign, style = _SIGNS[model.fit_in(memory_gb)]
    share = meter(min(1.0, model.memory_gb / memory_gb), _METER_CELLS)
    facts = Content.assemble(
        (f"  {sign} ", style),
        (share, _PLAIN),
        (f" {gigabytes(model.memory_gb)}", _PLAIN),
        (f" · {gigabytes(model.size_gb)} {model.packing}", _MUTED),
    )
    return _NEW_LINE.join([name, facts])


def _offer(model: ModelEntry, memory_gb: float) -> list[tuple[str, str]]:
    """Return the size and fit of a model that is not on this disk, where known."""
    if not model.expected_tps:
        return [(f"↓ not here yet, {gigabytes(model.size_gb)} to download", _MUTED)]
    sign, style = _SIGNS[model.fit_in(memory_gb)]
    return [
        (f"↓ {gigabytes(model.size_gb)} ", _MUTED),
        (sign, style),
        (f" ~{_speed(model.expected_tps)}", _PLAIN),
        (f" · {model.licence}", _MUTED),
    ]


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.{0 if tokens_per_s >= _EXACT_BELOW else 1}f} tokens/s"


def model_facts(model: ModelEntry, memory_gb: float) -> Content:
    """Return the details of a model, for the foot of the picker."""
    if model.problem:
        return trouble("cannot be chosen", model.problem)
    if not model.is_here:
        speed = ""
        if model.expected_tps:
            fit = _FITS[model.fit_in(memory_gb)]
            speed = f"; it {fit}; about {_speed(model.expected_tps)} without guesses"
        first = "Recommended for this machine. " if model.is_recommended else ""
        return Content.assemble(
            (f"{first}Enter downloads it, just this once: ", _PLAIN),
            (gigabytes(model.size_gb), f"{_PLAIN} bold"),
            (f"{speed}. f downloads it while you chat.", _MUTED),
        )
    fit = model.fit_in(memory_gb)
    context = f", context {count(model.context_length)}" if model.context_length else ""
    bound = "at most " if model.is_bound else ""
    at = f" at {count(model.memory_tokens)} tokens"
    rows = at if model.memory_tokens else " without keys and values"
    takes = f"Takes {bound}{gigabytes(model.memory_gb)}{rows}, of {memory_gb:.1f} GB: "
    drafts = f" · {safe_line(model.drafts)}" if model.drafts else ""
    return Content.assemble(
        (f"{safe_line(model.architecture)}, {model.packing}{context}. ", _MUTED),
        (takes, _MUTED),
        (_FITS[fit], _SIGNS[fit][1]),
        (drafts, _MUTED),
    )


def drafter_row(drafter: DrafterEntry, *, is_current: bool) -> Content:
    """Return the two rows of a drafter."""
    mark = ("● ", _GOOD) if is_current else ("  ", _MUTED)
    if drafter.problem:
        reason = Content.assemble(("  ✗ ", _BAD), (safe_line(drafter.problem), _MUTED))
        return _NEW_LINE.join([Content.assemble(mark, (safe_line(drafter.name), _MUTED)), reason])
    name = Content.assemble(mark, (safe_line(drafter.name), f"{_PLAIN} bold"))
    if drafter.is_fastest:
        name += Content.styled("  fastest", _GOOD)
    meaning = Content.styled("  ", _MUTED)
    if drafter.tokens_per_s is not None:
        meaning += Content.styled(f"{drafter.tokens_per_s:.1f} tokens/s · ", _PLAIN)
    meaning += Content.styled(safe_line(drafter.meaning), _MUTED)
    return _NEW_LINE.join([name, meaning])


def drafter_facts(drafter: DrafterEntry) -> Content:
    """Return the details of a drafter, for the foot of the picker."""
    if drafter.problem:
        return trouble(f"{safe_line(drafter.name)} cannot draft here", drafter.problem)
    speed = "measured on this machine" if drafter.tokens_per_s is not None else "not measured yet"
    return Content.styled(f"{safe_line(drafter.meaning)}; {speed}", _MUTED)


def load_news(state: ChatState) -> Content:
    """Return the progress of a load, or why one failed."""
    if state.phase == "loading":
        return Content.styled(loading_words(state.target, state.loading), f"{_PLAIN} bold")
    return load_trouble(state) or Content("")


def table_news(table: TableProgress | None) -> Content:
    """Return the progress of a table of the loaded model's own text."""
    if table is None or table.share is None:
        return Content("")
    words = f"{100 * table.share:.0f} %, {count(table.num_tokens)} tokens"
    return Content.styled(
        f"writing text to guess better from: {words}; it waits while you ask", f"{_PLAIN} bold"
    )


def fetch_news(fetching: Fetching | None) -> Content:
    """Return the progress of a download, or how it ended."""
    if fetching is None:
        return Content("")
    name = safe_line(fetching.model.name)
    if fetching.error:
        return trouble(f"{name} was not downloaded", fetching.error)
    if fetching.is_over:
        return Content.assemble(("✓ ", _GOOD), (f"{name} is here: Enter loads it", _PLAIN))
    share, whole = fetching.done / (fetching.total or 1), gigabytes(fetching.total / 1e9)
    words = f"{share:.0%} of {whole}".replace("%", " %") if fetching.total else "…"
    return Content.styled(f"downloading {name} {words}", f"{_PLAIN} bold")


def load_trouble(state: ChatState) -> Content | None:
    """Return why models could not be loaded, or None without an error."""
    if state.load_failure is not None:
        name = safe_line(state.load_failure.choice.model) or "the default model"
        return trouble(f"{name} could not be loaded", state.load_failure.message)
    return trouble("no model is loaded", state.error) if state.error else None


def trouble(what: str, why: str, key: str = "") -> Content:
    """Return a row with an error, its reason, and a key that helps."""
    row = Content.assemble(("✗ ", f"{_BAD} bold"), (f"{what}: ", _BAD), (safe_line(why), _PLAIN))
    return row + Content.styled(f"  {key}", f"{_MUTED} bold") if key else row
