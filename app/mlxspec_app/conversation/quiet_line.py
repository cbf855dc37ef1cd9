"""The line below a reply outside the X-ray: what the guesses gained, in plain language."""

from mlxspec_app.conversation.baseline import speedup
from mlxspec_app.conversation.figures import Part, copy_mark, reasons_of
from mlxspec_app.conversation.messages import Reply

GUESSED = "guessed right"
_EXACT_BELOW = 10  # tokens/s; lower speeds are shown with one decimal


def quiet_figures(reply: Reply) -> list[Part]:
    """Return the figures of a reply: its gain or its speed, and how many guesses were right."""
    stats = reply.stats
    if not stats.generated_tokens:
        return []
    parts = [Part(_gain(reply))]
    is_drafted = sum(stats.drafted_at_depth) > 0
    parts.append(Part(guessed_right(stats.acceptance_rate if is_drafted else None), 1))
    return parts + reasons_of(reply)


def guessed_right(rate: float | None) -> str:
    """Return the share of right guesses as text; a rate of None means no guesses."""
    return "no guesses" if rate is None else f"{100 * rate:.0f} % {GUESSED}"


def _gain(reply: Reply) -> str:
    gain = speedup(reply)
    if gain is None:
        tps = reply.stats.generation_tps
        return f"{tps:.{0 if tps >= _EXACT_BELOW else 1}f} tokens/s{copy_mark(reply)}"
    return f"{gain:.1f}x {'faster' if gain >= 1 else 'as fast'}{copy_mark(reply)}"
