"""What is known about one token of a reply: who wrote it, when, how probable it was, against whom.

A span of a reply came with one emitted token; its round and its place there tell which nodes of
the draft competed for that place.
"""

from dataclasses import dataclass

from mlxspec.trace.events import EmittedToken
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Judged, Place, Round, places


@dataclass(frozen=True)
class TokenFacts:
    """A token and its circumstances.

    Attributes:
        token: What was emitted, id and probabilities included.
        text: The text that it released.
        round: Number of the target forward.
        depth: Place in the round, 1 for the first.
        source: Drafter that proposed it, or "".
        rivals: Drafted tokens that lost this place, the likeliest first.
    """

    token: EmittedToken
    text: str
    round: int
    depth: int
    source: str
    rivals: tuple[Judged, ...] = ()


def facts_of(reply: Reply, span: int) -> TokenFacts | None:
    """Return what is known of the token behind a span; None for text that no token brought."""
    number = 0
    for round_ in reply.rounds:
        shown = [depth for depth, token in enumerate(round_.verdict.emit) if token.text]
        if span < number + len(shown):
            return _facts(round_, shown[span - number])
        number += len(shown)
    return None


def _facts(round_: Round, depth: int) -> TokenFacts:
    token = round_.verdict.emit[depth]
    found = dict(enumerate(places(round_))).get(depth, Place(()))
    rivals = tuple(judged for judged in found.tokens if judged.mark == "rejected")
    return TokenFacts(token, token.text, round_.verdict.r, depth + 1, round_.sources[depth], rivals)
