"""Drafts of whole trees as the default model's pool made them, and which of their nodes were right.

`python -m tests.support.recorded_drafts` makes the file anew, in five minutes on two cores.
"""

import json
from dataclasses import dataclass

from mlxspec import load
from mlxspec.budget import FixedBudget
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.paths import TESTS

FILE = TESTS / "budget" / "recorded.json"
NUM_DRAFT_TOKENS = 31
MOST_ROUNDS = 120  # of a kind of text
_STORY = (
    "The lighthouse stood on the last rock before the open sea. Its keeper wrote down every ship "
    "that passed, its flag, its course, and what the gulls did when it was gone. "
)
_LIST = "apples, pears, plums, cherries, quinces, figs, dates, olives, lemons, limes, grapes, nuts"
_FUNCTION = """def merge(left, right):
    merged = []
    while left and right:
        smaller = left if left[0] <= right[0] else right
        merged.append(smaller.pop(0))
    return merged + left + right
"""
_PROSE = (
    "Write a short paragraph about the sea, and one about the mountains.",
    "Tell me a short story about a fox who learns to read.",
    "Explain step by step how bread is made, from the flour to the oven.",
)
PROMPTS = {
    "prose": _PROSE,
    "sampled": _PROSE,
    "code": (
        "Write a Python class Stack with the methods push, pop, peek and is_empty, and use it.",
        "Write a function in JavaScript that sorts a list of numbers, and explain how it works.",
        "Write a SQL table for books and authors, and three queries over it.",
    ),
    "copy": (
        f"Repeat this text word for word, three times: {_STORY}",
        f"Copy this list five times: {_LIST}",
        f"Correct the spelling of this text, and change nothing else: {_STORY * 2}",
        f"Here is a text. {_STORY} Write the same text again, then summarise it.",
        f"Print this code four times:\n\n{_FUNCTION}",
        f"Add a docstring to this function and print all of it:\n\n{_FUNCTION}",
        f"Write one sentence about each of these, in this order: {_LIST}",
        f"Write a CSV table with a header and one row for each of these fruits: {_LIST}",
    ),
}


@dataclass(frozen=True)
class Recorded:
    """A whole draft, where node n has the token n; `path` has the nodes that were right."""

    parents: list[int]
    path_probs: list[float]
    path: list[int]

    def draft(self, count: int, *, is_lazy: bool = False) -> Draft:
        """The first nodes of the draft; a lazy one, of the device, tells no probabilities."""
        parents, probs = self.parents[: count + 1], self.path_probs[:count]
        tokens = list(range(len(parents)))
        return Draft.from_lists(
            tokens, parents, ["pool"] * len(probs), None, None if is_lazy else probs
        )

    def verified(self, draft: Draft) -> tuple[list[int], int]:
        """The path of a part of this draft, and the token after it; -1 is no node's."""
        kept = [0, *(node for node in self.path if node < draft.tree.n_nodes)]
        return kept, self.path[len(kept) - 1] if len(kept) <= len(self.path) else -1


def recorded() -> dict[str, list[Recorded]]:
    """The rounds of each kind of text."""
    texts = json.loads(FILE.read_text())
    return {
        name: [
            Recorded(parents, [p / 1000 for p in per_mille], path)
            for parents, per_mille, path in rounds
        ]
        for name, rounds in texts.items()
    }


class _Recorder(FixedBudget):
    def __init__(self) -> None:
        self.rounds: list[list[list[int]]] = []
        self._grown = Draft.empty(0)

    def cut(self, draft: Draft) -> Draft:
        self._grown = draft
        return draft

    def learn(self, round: Round) -> None:
        probs = [int(1000 * prob + 0.5) for prob in self._grown.path_probs or ()]
        if len(probs) == len(round.parents) - 1:
            self.rounds.append([list(round.parents), probs, list(round.path[1:])])


def record() -> None:
    """Make the file."""
    texts = {}
    with load(drafter="pool") as engine:
        for name, prompts in PROMPTS.items():
            recorder = _Recorder()
            sampling = SamplingParams(temperature=0.8 if name == "sampled" else 0.0)
            params = GenerationParams(
                max_tokens=200, num_draft_tokens=NUM_DRAFT_TOKENS, sampling=sampling, seed=1
            )
            for prompt in prompts:
                asked = [{"role": "user", "content": prompt}]
                tokens = engine.tokenizer.apply_chat_template(asked)
                list(engine.generate(tokens, params, budget=recorder))
            texts[name] = recorder.rounds[:MOST_ROUNDS]
    lines = [f'"{name}": {json.dumps(r, separators=(",", ":"))}' for name, r in texts.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
