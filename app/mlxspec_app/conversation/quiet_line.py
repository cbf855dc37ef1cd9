"""The line below a reply outside the X-ray: what the guesses gained, in plain words."""

from mlxspec_app.conversation.baseline import speedup
from mlxspec_app.conversation.figures import Part, reasons_of
from mlxspec_app.conversation.messages import Reply

GUESSED = "guessed right"


def quiet_figures(reply: Reply) -> list[Part]:
    """Return the figures of a reply: its gain or its speed, and how many guesses were right."""
    stats = reply.stats
    if not stats.generated_tokens:
        return []
    parts = [Part(_gain(reply))]
    if sum(stats.drafted_at_depth):
        parts.append(Part(f"{100 * stats.acceptance_rate:.0f} % {GUESSED}", 1))
    else:
        parts.append(Part("no guesses", 1))
    return parts + reasons_of(reply)


def _gain(reply: Reply) -> str:
    gain = speedup(reply)
    if gain is None:
        return f"{reply.stats.generation_tps:.0f} tokens/s"
    return f"{gain:.1f}x faster" if gain >= 1 else f"{gain:.1f}x as fast"
