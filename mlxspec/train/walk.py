"""Measure a drafter along stored greedy answers, without running the target.

The next tokens are stored, so no forward is needed to verify a draft. A drafter that uses hidden
states of the target gets the stored ones. The target's tokens after rejected nodes are not stored,
so a drafter that learns from these has a slightly higher acceptance in real decoding.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStates, Readers
from mlxspec.device import backend
from mlxspec.drafters.base import Drafter, as_drafter
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.train.data.corpus import GREEDY, Conversation
from mlxspec.train.evaluate import Acceptance
from mlxspec.train.features import Features


class _Round(NamedTuple):
    """Nodes drafted, how many of them were accepted, and seconds spent drafting."""

    drafted: int
    accepted: int
    draft_s: float


def fast_walk(
    make_drafter: Callable[[], Drafter], conversations: Iterable[Features], num_draft_tokens: int
) -> Acceptance:
    """Return the acceptance of a drafter along greedy answers; it agrees with `evaluate`.

    The conversations are held out and have the target's states. The drafter must not run the
    target, as an early exit does.
    """
    num_answers = num_tokens = drafted = 0
    draft_s = 0.0
    accepted: list[int] = []  # per forward
    drafter = make_drafter()
    for features in conversations:
        answers = Conversation(features.tokens, features.mask, True).spans(GREEDY)
        answers = [span for span in answers if span[0]]  # an answer needs a root before it
        drafter = make_drafter() if answers else drafter
        for start, end in answers:
            for done in _rounds(drafter, features, start, end, num_draft_tokens):
                drafted += done.drafted
                draft_s += done.draft_s
                accepted.append(done.accepted)
            num_answers, num_tokens = num_answers + 1, num_tokens + end - start
    depths = range(1, max(accepted, default=0) + 1)
    return Acceptance(
        drafter=drafter.name,
        shape="tree",
        temperature=0.0,
        num_draft_tokens=num_draft_tokens,
        num_answers=num_answers,
        num_tokens=num_tokens,
        forwards=len(accepted),
        drafted=drafted,
        accepted_at_depth=tuple(sum(length >= depth for length in accepted) for depth in depths),
        draft_s=draft_s,
    )


def _rounds(
    drafter: Drafter, features: Features, start: int, end: int, budget: int
) -> Iterator[_Round]:
    """Yield every round of the answer from start to end."""
    text: list[int] = features.tokens[:end].tolist()
    readers = Readers(as_drafter(drafter).readers)
    readers.forget(0)
    readers.read(text[: start - 1], _states(features, 0, start - 1))
    drafter.start(text[:start], SamplingParams(temperature=0.0), mx.random.key(0))
    position = start - 1
    while position < end - 1:
        begun = time.perf_counter()
        tree = drafter.propose(text[position], budget).tree
        backend.sync(tree.tokens, tree.parents)
        draft_s = time.perf_counter() - begun
        tokens, parents = backend.values(tree.tokens), backend.values(tree.parents)
        length = _accepted(tokens, parents, text[position + 1 :])
        yield _Round(len(tokens) - 1, length, draft_s)
        # the last token of an answer is always a bonus token: the last round ends with the answer
        kept = min(length, end - 2 - position)
        after = position + kept + 1
        readers.read(text[position:after], _states(features, position, after))
        drafter.update(_round_of(features, position, kept))
        position = after


def _states(features: Features, start: int, end: int) -> HiddenStates:
    entering = {
        layer: states[start:end].astype(mx.float32) for layer, states in features.entering.items()
    }
    return HiddenStates(features.final[start:end].astype(mx.float32), entering)


def _accepted(tokens: Sequence[int], parents: Sequence[int], text: Sequence[int]) -> int:
    children = {edge: node for node, edge in enumerate(zip(parents, tokens, strict=True))}
    node = length = 0
    while length < len(text) and (node, text[length]) in children:
        node = children[node, text[length]]
        length += 1
    return length


def _round_of(features: Features, place: int, length: int) -> Round:
    """Return a round whose tree was only the accepted path."""
    nodes = slice(place, place + length + 1)
    return Round(
        tokens=features.tokens[nodes].tolist(),
        parents=list(range(-1, length)),
        path=list(range(length + 1)),
        bonus_token=int(features.tokens[place + length + 1]),
        top_tokens=features.top_tokens[nodes].tolist(),
        top_probs=features.top_probs[nodes].astype(float).tolist(),
    )
