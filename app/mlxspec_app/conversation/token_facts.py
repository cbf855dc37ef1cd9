"""The facts about one token of a reply: who wrote it, when, its probabilities, its rivals.

A span of a reply belongs to one emitted token. The round of the token and its position in that
round identify the draft nodes that competed with it.
"""

from dataclasses import dataclass

from mlxspec.trace.events import EmittedToken
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import MarkedToken, Position, Round, positions


@dataclass(frozen=True)
class TokenFacts:
    """A token and the facts about it.

    `round` is 0 for a kept token. `depth` is the position in the round, from 1, and `index` the one
    in the reply, from 0. `source` is "" for a token that was not drafted. `rivals` are the draft
    tokens rejected at this position, the most probable first.
    """

    token: EmittedToken
    text: str
    round: int
    depth: int
    source: str
    index: int = 0
    rivals: tuple[MarkedToken, ...] = ()


def facts_of(reply: Reply, span: int) -> TokenFacts | None:
    """Return the facts about the token of a span; None for text that no token released."""
    number = index = 0
    for index, token in enumerate(reply.kept.emit if reply.kept is not None else (), 1):
        if token.text and number == span:
            return TokenFacts(token, token.text, 0, index, "", index - 1)
        number += bool(token.text)
    for round_ in reply.rounds:
        # a token that ends inside a character releases no text, so it has no span
        shown = [depth for depth, token in enumerate(round_.verdict.emit) if token.text]
        if span < number + len(shown):
            return _facts(round_, shown[span - number], index)
        number += len(shown)
        index += len(round_.verdict.emit)
    return None


def round_of(reply: Reply, span: int) -> Round | None:
    """Return the round that emitted the token of a span, if any did."""
    number = reply.spans[span].round
    return next((each for each in reply.rounds if each.verdict.r == number), None)


def _facts(round_: Round, depth: int, num_before: int) -> TokenFacts:
    token = round_.verdict.emit[depth]
    found = dict(enumerate(positions(round_))).get(depth, Position(()))
    rivals = tuple(judged for judged in found.tokens if judged.mark == "rejected")
    source, index = round_.sources[depth], num_before + depth
    return TokenFacts(token, token.text, round_.verdict.r, depth + 1, source, index, rivals)
