"""The run: every arm replies to every question, turn by turn, the arms in rotating order.

The prompt of the next turn holds the baseline's reply for all arms. So all arms read the same text,
also at temperatures at which their replies differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mlxspec.bench.arms import Arm, Task
from mlxspec.bench.prompts import Question
from mlxspec.engine.engine import Engine
from mlxspec.errors import ContextLengthError
from mlxspec.measure.lossless import first_difference
from mlxspec.measure.trial import Trial, prompt_tokens, rotated
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

    def task(self, task: Task) -> Task:
        """Return the task of this conversation."""
        return replace(
            task,
            temperature=self.temp,
            seed=task.seed + self.repeat,
            grammar=self.question.grammar,
        )


@dataclass(frozen=True)
class Row:
    """One conversation of one arm: its replies, turn by turn.

    `differences` are the first differences of greedy replies from the baseline's, turn by turn.
    """

    case: Case
    arm: str
    replies: tuple[Trial, ...]
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
        prompt = prompt_tokens(self.engine, _WARM_UP)
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
            case: The conversation.
            number: Number of conversations before it; it decides which arm writes first.
            task: Settings of the replies; those of the conversation replace some of them.
            known: Rows of the conversation from an earlier run.
            tell: Called with the name of each arm before it writes.

        Raises:
            ContextLengthError: The conversation is longer than the context of the model.
        """
        replies = {row.arm: list(row.replies) for row in known}
        waiting = [arm for arm in rotated(self.arms, number) if arm.name not in replies]
        replies |= {arm.name: [] for arm in waiting}
        differences: dict[str, list[Difference | None]] = {arm.name: [] for arm in waiting}
        task, texts = case.task(task), []
        for arm in waiting:
            arm.begin()
        for turn, question in enumerate(case.question.turns):
            texts.append(question)
            prompt = prompt_tokens(self.engine, *texts)
            self._check_room(len(prompt), task.max_tokens)
            for arm in waiting:
                tell(arm.name)
                replies[arm.name].append(arm.write(prompt, task))
            standard = replies[self.baseline][turn]
            texts.append(self.engine.tokenizer.decode(standard.tokens))
            for arm in waiting if case.temp == 0 else ():
                found = self._compare(prompt, replies[arm.name][turn], standard)
                differences[arm.name].append(found)
        return [
            Row(case, arm.name, tuple(replies[arm.name]), tuple(differences[arm.name]))
            for arm in waiting
        ]

    def _compare(self, prompt: Sequence[int], written: Trial, standard: Trial) -> Difference | None:
        is_foreign = not (written.is_own and standard.is_own)
        return first_difference(
            self.engine, prompt, written.tokens, standard.tokens, is_foreign=is_foreign
        )

    def _check_room(self, num_prompt: int, max_tokens: int) -> None:
        room = self.engine.context_length
        if room is not None and num_prompt + max_tokens > room:
            raise ContextLengthError(
                f"a prompt of {num_prompt} tokens and a reply of {max_tokens} exceed the context "
                f"length of {self.engine.name or 'the model'}, {room} tokens: give a smaller "
                "--max-tokens or shorter prompts",
                room,
            )
