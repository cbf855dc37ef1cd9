"""Checks whether greedy replies are the same as those of plain decoding, token by token.

At the first difference the target computes the logits of both tokens again, one row alone. Rounding
explains a gap between the two that is at most a small multiple of the measured drift (see
`trace/near_tie.py`); it explains no larger gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mlxspec.bench.sample import Arm, Task
from mlxspec.engine.engine import Engine
from mlxspec.measure.compare import first_difference, proof_of
from mlxspec.trace.difference import Difference
from mlxspec.trace.proof import Proof


@dataclass(frozen=True)
class GreedyCase:
    """A prompt and its plain reply, which is empty before it is written.

    `name` is the category and the number of the question.
    """

    name: str
    prompt: tuple[int, ...]
    task: Task
    plain: tuple[int, ...] = ()


@dataclass(frozen=True)
class Parting:
    """A reply that differs from the plain one; `question` is the name of its case."""

    question: str
    proof: Proof

    @property
    def difference(self) -> Difference:
        """The first difference of the two replies."""
        assert self.proof.difference is not None
        return self.proof.difference


@dataclass(frozen=True)
class Agreement:
    """The comparison of one drafter's replies with plain decoding.

    `partings` are the replies that differ from the plain ones. `drafted` and `accepted` count draft
    nodes. `faults` has one error of the drafter for each reply that had one.
    """

    drafter: str
    num_replies: int
    num_tokens: int
    drafted: int
    accepted: int
    partings: tuple[Parting, ...]
    faults: tuple[str, ...] = ()

    @property
    def num_same(self) -> int:
        """Number of replies that are the same as the plain ones."""
        return self.num_replies - len(self.partings)


def check_replies(
    engine: Engine, arm: Arm, cases: Iterable[GreedyCase], near_tie: float
) -> Agreement:
    """Compare the replies of a drafter with the plain ones.

    `near_tie` is the largest gap between two logits that rounding explains.
    """
    partings, faults = [], []
    num_replies = num_tokens = drafted = accepted = 0
    for case in cases:
        reply = arm.write(case.prompt, case.task)
        num_replies += 1
        num_tokens += len(reply.tokens)
        drafted += reply.stats["drafted"]
        accepted += reply.stats["accepted"]
        if reply.fault:
            faults.append(reply.fault)
        found = first_difference(engine, case.prompt, reply.tokens, case.plain, near_tie=near_tie)
        if found is not None:
            partings.append(Parting(case.name, proof_of(engine, len(reply.tokens), found)))
    return Agreement(
        arm.name, num_replies, num_tokens, drafted, accepted, tuple(partings), tuple(faults)
    )
