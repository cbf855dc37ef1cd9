"""The definitions of the figures on the screen: the field disagrees about most of them."""

import re
from typing import NamedTuple


class Definition(NamedTuple):
    """A figure on the screen and how we count it.

    `seen` is a pattern that finds the figure in a row, or "" to look for its name. `is_sign` marks
    a kind of token, which the legend shows too.
    """

    name: str
    meaning: str
    seen: str = ""
    is_sign: bool = False


DEFINITIONS = (
    Definition(
        "x faster",
        "tokens/s of this reply against the model alone, measured here while idle",
        r"x (?:faster|as fast)",
    ),
    Definition(
        "guessed right", "guesses that the model agreed with, of all that it checked: % accepted"
    ),
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
    Definition(
        "\u00d7 plain",
        "tokens/s over plain decoding at this context, measured here while idle",
        "\u00d7",
    ),
    Definition("p, q", "probability under the target, and under the drafter", r"\bq/p\b|[pq] [≥>]"),
    Definition("accepted", "drafted, and the target agreed", r"(?<!% )\baccepted\b", is_sign=True),
    Definition("corrected", "the target's token where the draft was wrong", is_sign=True),
    Definition("bonus", "the target's token after a fully kept draft", is_sign=True),
)


def definitions_in(row: str) -> list[Definition]:
    """Return the definitions of the figures that a row of the screen shows."""
    return [each for each in DEFINITIONS if re.search(each.seen or re.escape(each.name), row)]
