"""Greedy replies: are they those of plain decoding, token by token?

Where one is not, the target is asked for the logits of both tokens at the first difference with
nothing beside them. Rounding explains a gap between them that is no larger than a small multiple of
the measured drift (see `trace/near_tie.py`); it explains no other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mlxspec.bench.sample import Arm, Task
from mlxspec.engine.engine import Engine
from mlxspec.measure.compare import first_difference, proof_of
from mlxspec.trace.difference import Difference
from mlxspec.trace.proof import Proof


@dataclass(frozen=True)
class Asked:
    """A prompt, and its plain reply once there is one.

    Attributes:
        name: Category and number of the question.
        prompt: Tokens.
        task: How the reply is written.
        plain: What plain decoding replied.
    """

    name: str
    prompt: tuple[int, ...]
    task: Task
    plain: tuple[int, ...] = ()


@dataclass(frozen=True)
class Parting:
    """A reply that is not the plain one.

    Attributes:
        question: What was asked.
        proof: How far it is the same, and what stands there.
    """

    question: str
    proof: Proof

    @property
    def difference(self) -> Difference:
        """Where the two part."""
        assert self.proof.difference is not None
        return self.proof.difference


@dataclass(frozen=True)
class Agreement:
    """What one drafter's replies are like.

    Attributes:
        drafter: Its name.
        num_replies: Replies.
        num_tokens: Tokens in all of them.
        drafted: Draft nodes that were verified.
        accepted: Of these, how many were kept.
        partings: Replies that are not the plain ones.
        faults: What the drafter broke down with, once per reply.
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
        """Replies that are the plain ones."""
        return self.num_replies - len(self.partings)


def check_replies(
    engine: Engine, arm: Arm, questions: Iterable[Asked], near_tie: float
) -> Agreement:
    """Let a drafter reply to some questions, and compare.

    Args:
        engine: The arm's engine.
        arm: Writes the replies.
        questions: What is asked, with the plain replies.
        near_tie: Largest gap between two logits that rounding explains.
    """
    partings, faults = [], []
    num_replies = num_tokens = drafted = accepted = 0
    for asked in questions:
        reply = arm.write(asked.prompt, asked.task)
        num_replies += 1
        num_tokens += len(reply.tokens)
        drafted += reply.stats["drafted"]
        accepted += reply.stats["accepted"]
        if reply.fault:
            faults.append(reply.fault)
        found = first_difference(engine, asked.prompt, reply.tokens, asked.plain, near_tie=near_tie)
        if found is not None:
            partings.append(Parting(asked.name, proof_of(engine, len(reply.tokens), found)))
    return Agreement(
        arm.name, num_replies, num_tokens, drafted, accepted, tuple(partings), tuple(faults)
    )
