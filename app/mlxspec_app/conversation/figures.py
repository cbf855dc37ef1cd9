"""Figures as text and their definitions, and lines whose parts fit a width."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.events import LoadProgress
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.speeds import speedup
from mlxspec_app.text.safe_text import safe_line

GUESSED = "guessed"
RATIO = "x the speed"
_NAME_CELLS = 40
_EXACT_BELOW = 10  # tokens/s; lower speeds are shown with one decimal
GREEDY = "greedy"
"""`GenerationStarted.lossless` of a greedy reply."""

_REASONS = {
    "length": "length limit",
    "cancelled": "stopped",
    "repeating": "stopped: repeating",
    "context": "context full, Ctrl+N starts a new chat",
}


def count(number: int) -> str:
    """Return a count of tokens in a few characters, such as 1.9k or 32k."""
    if number < 1000:
        return str(number)
    thousands = number / 1000
    return f"{thousands:.1f}k" if thousands < 10 else f"{thousands:.0f}k"


def size(number: int) -> str:
    """Return a number of bytes in MB."""
    return f"{number / 1e6:.0f} MB"


def loading_words(target: str, progress: LoadProgress | None) -> str:
    """Return the progress of loading a model, in a few words."""
    name = safe_line(target)[:_NAME_CELLS] or "the model"
    if progress is None or progress.total <= progress.done:
        return f"loading {name} …"
    return f"downloading {name} {100 * progress.done // progress.total} %"


def prob(value: float | None) -> str:
    """Return a probability such as .71, or "" if unknown."""
    if value is None:
        return ""
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0") else text[:4]


def seconds(value: float) -> str:
    """Return a time in seconds, with two decimals below 10 s and none above."""
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


@dataclass(frozen=True)
class Part:
    """A piece of a line; parts of the highest rank are left out first, rank 0 always stays."""

    text: str
    rank: int = 0


def fitting(parts: Sequence[Part], width: int, gap: int) -> list[Part]:
    """Return the parts that fit `width` cells with `gap` cells between them, in their order."""
    shown = list(parts)
    while len(shown) > 1 and sum(cell_len(part.text) + gap for part in shown) - gap > width:
        worst = max(shown, key=lambda part: part.rank)
        if worst.rank == 0:
            break
        shown.remove(worst)
    return shown


def ratio_words(ratio: float) -> str:
    """Return a ratio of two speeds: the one notation for it, below 1 as well."""
    return f"{ratio:.1f}{RATIO}"


def speed_words(reply: Reply) -> str:
    """Return how fast a reply was against plain decoding, or "" if unknown."""
    gain = speedup(reply)
    return "" if gain is None else f"{ratio_words(gain)}{_copy_mark(reply)}"


def _copy_mark(reply: Reply) -> str:
    """Return the mark after the speed of a reply that the drafter has seen before, or ""."""
    return " (a copy)" if reply.is_copy else ""


def seed_words(reply: Reply) -> str:
    """Return the seed of a sampled reply as text; "" for a greedy one, which draws nothing."""
    if reply.started is None or reply.started.lossless == GREEDY:
        return ""
    return f"seed {reply.started.seed}"


def reply_figures(reply: Reply) -> list[Part]:
    """Return the figures below a reply; the most useful ones have the lowest rank."""
    stats = reply.stats
    if not stats.generated_tokens:
        return _reasons_of(reply)  # it was stopped while its prompt was read
    parts = [Part(f"{stats.generation_tps:.1f} tokens/s")]
    if gain := speed_words(reply):
        parts.append(Part(gain, 1))
    parts.append(Part(f"TTFT {seconds(stats.ttft_s)}", 4))
    parts.append(Part(f"{stats.generated_tokens} tok", 2))
    if stats.kept_tokens:
        parts.append(Part(f"{stats.kept_tokens} kept", 3))
    if stats.rounds:
        parts.append(Part(f"{stats.mean_acceptance_length:.2f} tok/round", 3))
        parts.append(Part(f"{stats.acceptance_rate:.0%} accepted".replace("%", " %"), 1))
    else:
        parts.append(Part("no drafts", 1))
    if seed := seed_words(reply):
        parts.append(Part(seed, 5))
    return parts + _reasons_of(reply)


def _reasons_of(reply: Reply) -> list[Part]:
    return [Part(_REASONS[reply.reason])] if reply.reason in _REASONS else []


def quiet_figures(reply: Reply) -> list[Part]:
    """Return the figures below a reply outside the X-ray, in plain language."""
    stats = reply.stats
    if not stats.generated_tokens:
        return _reasons_of(reply)  # it was stopped while its prompt was read
    tps = stats.generation_tps
    speed = f"{tps:.{0 if tps >= _EXACT_BELOW else 1}f} tokens/s{_copy_mark(reply)}"
    parts = [Part(speed_words(reply) or speed), Part(guessed(stats), 1)]
    return parts + _reasons_of(reply)


def guessed(stats: GenerationStats) -> str:
    """Return the share of the tokens that have the tint of a guess, as text."""
    if not stats.rounds:
        return "no guesses"
    num_tokens = max(1, stats.kept_tokens + stats.generated_tokens)
    return f"{100 * stats.kinds.get('accepted', 0) / num_tokens:.0f} % {GUESSED}"


# ---- definitions ------------------------------------------------------------------------------


class Definition(NamedTuple):
    """A figure on the screen and how we count it: the field disagrees about most of them."""

    name: str
    meaning: str
    seen: str = ""  # a pattern that finds the figure in a row; "" to look for its name
    is_sign: bool = False  # whether it is a kind of token, which the legend shows too


DEFINITIONS = (
    Definition("x the speed", "of the model alone: rounds with guesses, timed beside some without"),
    Definition("guessed", "tokens of the reply that were guessed: those with a tint"),
    Definition("(a copy)", "the reply repeats an earlier one, so the guesses were easy"),
    Definition("rounds", "forwards of the target that verified a draft; plain: those without one"),
    Definition("drafted", "nodes sent to the target; accepted: those it kept"),
    Definition(
        "% accepted", "acceptance rate, accepted / drafted depth: siblings count once", "% accepted"
    ),
    Definition(
        "mean length", "mean acceptance length, 1 + accepted / rounds: its own token counts"
    ),
    Definition("pos_i", "position i, all: rounds that kept a token there / all rounds"),
    Definition("cond_i", "position i, reached: the same / rounds that kept the token before it"),
    Definition("tok/round", "the same figure, below a reply"),
    Definition("tokens/s", "tokens of the reply per second; reading the prompt is left out"),
    Definition("TTFT", "time to the first token, the prompt included"),
    Definition("p, q", "probability under the target, and under the drafter", r"\bq/p\b|[pq] [≥>]"),
    Definition("accepted", "drafted, and the target agreed", r"(?<!% )\baccepted\b", is_sign=True),
    Definition("corrected", "the target's token where the draft was wrong", is_sign=True),
    Definition("bonus", "the target's token after a fully kept draft", is_sign=True),
)


def definitions_in(row: str) -> list[Definition]:
    """Return the definitions of the figures that a row of the screen shows."""
    return [each for each in DEFINITIONS if re.search(each.seen or re.escape(each.name), row)]
