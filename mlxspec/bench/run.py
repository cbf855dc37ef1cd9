"""The run: every arm replies to every question, turn by turn, the arms in rotating order.

The prompt of the next turn holds the baseline's reply for all arms. So all arms read the same text,
also at temperatures at which their replies differ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mlxspec.bench.prompts import Question
from mlxspec.bench.sample import Arm, Reply, Task
from mlxspec.engine.engine import Engine
from mlxspec.errors import ContextLengthError
from mlxspec.measure.compare import first_difference
from mlxspec.trace.difference import Difference

_WARM_UP = "Name three colours, and say them again: "


@dataclass(frozen=True)
class Plan:
    """The questions and settings of a run; each repeat adds 1 to the seed of `task`."""

    questions: Sequence[Question]
    temps: Sequence[float]
    repeats: int
    task: Task

    @property
    def cases(self) -> list["Case"]:
        """All conversations, in the order of the run."""
        numbers = product(range(self.repeats), self.questions, self.temps)
        return [Case(question, temp, repeat) for repeat, question, temp in numbers]


@dataclass(frozen=True)
class Case:
    """One conversation, the same for every arm; `repeat` counts from 0."""

    question: Question
    temp: float
    repeat: int


@dataclass(frozen=True)
class Row:
    """One conversation of one arm: its replies, turn by turn.

    `differences` are the first differences of greedy replies from the baseline's, turn by turn.
    """

    case: Case
    arm: str
    replies: tuple[Reply, ...]
    differences: tuple[Difference | None, ...] = ()


class Runner:
    """Runs the conversations with all arms, the baseline included.

    The engine computes the target's logits where two replies differ.
    """

    def __init__(self, engine: Engine, arms: Sequence[Arm], baseline: str) -> None:
        self.engine = engine
        self.arms = list(arms)
        self.baseline = baseline

    def warm_up(self, task: Task, tell: Callable[[str], None]) -> None:
        """Let every arm write a few tokens that do not count."""
        prompt = self.prompt([{"role": "user", "content": _WARM_UP}])
        for arm in self.arms:
            tell(arm.name)
            arm.begin()
            arm.write(prompt, replace(task, max_tokens=min(task.max_tokens, 8)))

    def rows(
        self,
        case: Case,
        number: int,
        task: Task,
        known: Sequence[Row] = (),
        tell: Callable[[str], None] = lambda name: None,
    ) -> list[Row]:
        """Return the rows of a conversation, for all arms that are not in `known`.

        Args:
            case: Its temperature replaces that of `task`, and its repeat is added to the seed.
            number: Number of conversations before it; it decides which arm writes first.
            task: Settings of the replies.
            known: Rows of the conversation from an earlier run.
            tell: Called with the name of each arm before it writes.

        Raises:
            ContextLengthError: The conversation is longer than the context of the model.
        """
        done = {row.arm: row for row in known}
        first = number % len(self.arms)
        waiting = [arm for arm in (*self.arms[first:], *self.arms[:first]) if arm.name not in done]
        task = replace(task, temperature=case.temp, seed=task.seed + case.repeat)
        replies: dict[str, list[Reply]] = {arm.name: [] for arm in waiting}
        for arm in waiting:
            arm.begin()
        differences: dict[str, list[Difference | None]] = {arm.name: [] for arm in waiting}
        for turn, prompt in enumerate(self._prompts(case.question, replies, done)):
            self._check_room(len(prompt), task.max_tokens)
            for arm in waiting:
                tell(arm.name)
                replies[arm.name].append(arm.write(prompt, task))
            if case.temp == 0:
                standard = self._standard(replies, done, turn)
                for arm in waiting:
                    found = self._compare(prompt, replies[arm.name][turn], standard)
                    differences[arm.name].append(found)
        return [
            Row(case, name, tuple(written), tuple(differences[name]))
            for name, written in replies.items()
        ]

    def _compare(self, prompt: Sequence[int], written: Reply, standard: Reply) -> Difference | None:
        is_foreign = not (written.is_own and standard.is_own)
        return first_difference(
            self.engine, prompt, written.tokens, standard.tokens, is_foreign=is_foreign
        )

    def _prompts(
        self, question: Question, replies: dict[str, list[Reply]], done: dict[str, Row]
    ) -> Iterator[list[int]]:
        """Yield the prompt of each turn; its replies must be in `replies` before the next turn."""
        messages: list[dict[str, str]] = []
        for turn, text in enumerate(question.turns):
            messages.append({"role": "user", "content": text})
            yield self.prompt(messages)
            tokens = self._standard(replies, done, turn).tokens
            reply = self.engine.tokenizer.decode(tokens)
            messages.append({"role": "assistant", "content": reply})

    def _standard(self, replies: dict[str, list[Reply]], done: dict[str, Row], turn: int) -> Reply:
        known = done.get(self.baseline)
        return known.replies[turn] if known else replies[self.baseline][turn]

    def _check_room(self, num_prompt: int, max_tokens: int) -> None:
        room = self.engine.context_length
        if room is not None and num_prompt + max_tokens > room:
            raise ContextLengthError(
                f"a prompt of {num_prompt} tokens and a reply of {max_tokens} exceed the context "
                f"length of {self.engine.name or 'the model'}, {room} tokens: give a smaller "
                "--max-tokens or shorter prompts",
                room,
            )

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the prompt tokens of a conversation that ends with a user's turn."""
        tokenizer = self.engine.tokenizer
        if tokenizer.has_chat_template:
            return tokenizer.apply_chat_template(messages)
        return tokenizer.encode("\n\n".join(message["content"] for message in messages))
