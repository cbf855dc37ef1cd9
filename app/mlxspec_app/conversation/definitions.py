"""The definitions of the figures on the screen: the field disagrees about most of them."""

from typing import NamedTuple


class Definition(NamedTuple):
    """A figure and how we count it."""

    name: str
    meaning: str


DEFINITIONS = (
    Definition("rounds", "forwards of the target that verified a draft; plain: those without one"),
    Definition("drafted", "nodes sent to the target; accepted: those it kept"),
    Definition("accepted", "acceptance rate, accepted / drafted depth: siblings count once"),
    Definition(
        "mean length", "mean acceptance length, 1 + accepted / rounds: its own token counts"
    ),
    Definition("pos_i", "position i, all: rounds that kept a token there / all rounds"),
    Definition("cond_i", "position i, reached: the same / rounds that kept the token before it"),
    Definition("tok/round", "the same figure, below a reply"),
    Definition("tok/s", "tokens of the reply per second; reading the prompt is left out"),
    Definition("TTFT", "time to the first token, the prompt included"),
    Definition(
        "\u00d7 plain", "tok/s over plain decoding at this context, measured here while idle"
    ),
    Definition("p, q", "probability under the target, and under the drafter"),
)
