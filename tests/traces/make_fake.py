"""Writes made-up traces for developing and testing the app: run it to renew the files beside it.

The texts, probabilities and times are invented and follow from the seed alone. A draft is right
about its next token with the probability that the drafter states, so the traces look like real
ones; no model is involved. Tokens are words, halves of long words, and single wide characters.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    Event,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TokenKind,
    TurnStarted,
)
from mlxspec.trace.file import TraceWriter
from mlxspec.trace.stats import GenerationStats

PROSE = (
    "Speculative decoding lets a small model guess the next few tokens while the large model "
    "checks them all in one forward pass. Every accepted token is exactly what the target would "
    "have produced on its own, so the text does not change; only the waiting gets shorter.\n\n"
    "It works because reading weights from memory costs more than the arithmetic: verifying six "
    "tokens takes hardly longer than computing one."
)
CODE = (
    "Here is a short version:\n\n```python\ndef merge(left, right):\n    merged = []\n"
    "    while left and right:\n        smaller = left if left[0] <= right[0] else right\n"
    "        merged.append(smaller.pop(0))\n    return merged + left + right\n```\n\n"
    "It keeps taking the smaller head of the two lists until one of them is empty."
)
WIDE = (
    "Bonjour, café, naïve. 投機的デコードは、小さなモデルが次の数語を推測し、"
    "大きなモデルが一度に確かめます。 Emoji: 🙂 👩‍🚀 🇯🇵 ❤️ done. Zero-width joiners stay whole."
)
_WORDS = ["the", "of", "and", "to", "in", "is", "that", "it", "for", "was", "with", "by"]
_WORDS += ["his", "her"]


@dataclass
class FakeEngine:
    """Yields the events of one invented reply after another."""

    seed: int = 7
    width: int = 1
    depth: int = 5
    certainty: float = 0.8
    drafter: str = "EAGLE head"
    _context: int = field(default=0, init=False)

    def reply(self, user: str, text: str) -> Iterator[Event]:
        rng = random.Random(f"{self.seed} {user} {text}")
        stats = GenerationStats()
        yield TurnStarted("user", user)
        for event in self._events(rng, user, text, stats):
            stats.add(event)
            yield event

    def _events(
        self, rng: random.Random, user: str, text: str, stats: GenerationStats
    ) -> Iterator[Event]:
        tokens = split_tokens(text)
        yield GenerationStarted(
            target="SmolLM2-135M-Instruct",
            drafter=self.drafter,
            device="CPU",
            weights="float32",
            lossless="greedy",
            seed=self.seed,
            context_length=8192,
        )
        reused, self._context = self._context, self._context + 12 + len(user) // 4
        for share in (0.0, 0.5, 1.0):
            done = reused + int((self._context - reused) * share)
            yield PrefillProgress(round(0.12 * share, 4), done, self._context, reused)
        ts, r, at = 0.12, 0, 0
        while at < len(tokens):
            r += 1
            step = self._plain if r % 17 == 3 else self._round
            for event in step(rng, tokens, at, r, ts):
                yield event
                ts = event.ts
                at += len(event.emit) if not isinstance(event, DraftProposed) else 0
        ts = round(ts + 0.001, 4)
        yield GenerationFinished(ts, "stop", stats=stats.as_dict() | {"peak_memory_gb": 0.62})

    def _plain(
        self, rng: random.Random, tokens: Sequence[str], at: int, r: int, ts: float
    ) -> Iterator[PlainDecoded]:
        ms = round(rng.uniform(28, 34), 2)
        self._context += 1
        token = EmittedToken(_id(tokens[at]), tokens[at], "plain", _prob(rng))
        yield PlainDecoded(r, round(ts + ms / 1e3, 4), (token,), ms, self._context)

    def _round(
        self, rng: random.Random, tokens: Sequence[str], at: int, r: int, ts: float
    ) -> Iterator[DraftProposed | DraftVerified]:
        nodes, path = self._draft(rng, tokens, at)
        draft_ms = round(rng.uniform(2.4, 3.8) + 0.3 * len(nodes), 2)
        verify_ms = round(rng.uniform(29, 36) + 0.4 * len(nodes), 2)
        ts = ts + draft_ms / 1e3
        root = _id(tokens[at - 1]) if at else 1
        yield DraftProposed(r, round(ts, 4), root, tuple(nodes), draft_ms)
        kept = len(path)
        by_index = {node.index: node for node in nodes}
        emit = [
            EmittedToken(_id(t), t, "accepted", _prob(rng), by_index[index].prob)
            for t, index in zip(tokens[at:], path, strict=False)
        ]
        if at + kept < len(tokens):
            last = path[-1] if path else 0
            is_leaf = all(node.parent != last for node in nodes)
            kind: TokenKind = "bonus" if is_leaf else "corrected"
            token = tokens[at + kept]
            emit.append(EmittedToken(_id(token), token, kind, _prob(rng)))
        self._context += len(emit)
        yield DraftVerified(
            r,
            round(ts + (verify_ms + rng.uniform(0.3, 0.9)) / 1e3, 4),
            tuple(path),
            tuple(emit),
            verify_ms,
            len(nodes) + 1 - len(emit),
            self._context,
        )

    def _draft(
        self, rng: random.Random, tokens: Sequence[str], at: int
    ) -> tuple[list[DraftNode], list[int]]:
        nodes: list[DraftNode] = []
        path: list[int] = []
        parent, on_path = 0, True
        for depth in range(min(self.depth, len(tokens) - at)):
            q = min(0.99, max(0.05, rng.betavariate(8 * self.certainty, 8 * (1 - self.certainty))))
            right = tokens[at + depth]
            on_path = on_path and rng.random() < q
            text = right if on_path else _other(rng, right)
            nodes.append(DraftNode(len(nodes) + 1, parent, _id(text), text, round(q, 3), "eagle"))
            chosen = len(nodes)
            rest = 1 - q
            for _ in range(self.width - 1):
                rest = round(rest * rng.uniform(0.3, 0.6), 3)
                text = _other(rng, right)
                if any(n.parent == parent and n.text == text for n in nodes):
                    continue
                nodes.append(DraftNode(len(nodes) + 1, parent, _id(text), text, rest, "eagle"))
            if on_path:
                path.append(chosen)
            parent = chosen
        return nodes, path


def split_tokens(text: str) -> list[str]:
    """Split into word-like pieces with their leading space, wide characters one by one."""
    pieces = re.findall(r" ?[A-Za-z0-9_éï]{1,7}| ?[^\sA-Za-z0-9_]|\n+| +", text)
    assert "".join(pieces) == text
    return pieces


def _other(rng: random.Random, right: str) -> str:
    return rng.choice([" " + word for word in _WORDS if " " + word != right])


def _id(text: str) -> int:
    return sum(ord(char) * 31**place for place, char in enumerate(text)) % 49152


def _prob(rng: random.Random) -> float:
    return round(rng.betavariate(5, 1.4), 3)


def chat() -> list[Event]:
    """Two turns drafted as chains."""
    engine = FakeEngine()
    return [
        *engine.reply("Explain speculative decoding in a few sentences.", PROSE),
        *engine.reply("Write a function that merges two sorted lists.", CODE),
    ]


def tree() -> list[Event]:
    """One turn drafted as trees."""
    engine = FakeEngine(seed=11, width=3, depth=4, certainty=0.7, drafter="EAGLE-3 head, tree")
    return list(engine.reply("What is a draft tree?", PROSE))


def wide() -> list[Event]:
    """One turn with accents, wide characters and emoji."""
    return list(FakeEngine(seed=3, drafter="suffix").reply("日本語で説明して 🙂", WIDE))


TRACES = {"chat": chat, "tree": tree, "wide": wide}

if __name__ == "__main__":
    for name, make in TRACES.items():
        path = Path(__file__).with_name(f"{name}.jsonl")
        path.unlink(missing_ok=True)
        with TraceWriter(path) as writer:
            for event in make():
                writer.write(event)
