"""The run: every question to every arm, turn by turn, the arms in rotating order.

The reply of the baseline is what stands in the next turn's prompt for all arms, so everybody
reads the same text, at temperatures where replies differ as well.
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
    """What to run.

    Attributes:
        questions: The questions.
        temps: Temperatures.
        repeats: How often each question is asked at each of them.
        task: Everything else; its seed is the first of `repeats`.
    """

    questions: Sequence[Question]
    temps: Sequence[float]
    repeats: int
    task: Task

    @property
    def cases(self) -> list["Case"]:
        """All conversations, in their order."""
        numbers = product(range(self.repeats), self.questions, self.temps)
        return [Case(question, temp, repeat) for repeat, question, temp in numbers]


@dataclass(frozen=True)
class Case:
    """One conversation that every arm has.

    Attributes:
        question: What is said in it.
        temp: At which temperature.
        repeat: For the how many'th time, from 0.
    """

    question: Question
    temp: float
    repeat: int


@dataclass(frozen=True)
class Row:
    """One conversation of one arm.

    Attributes:
        case: Which one.
        arm: Whose.
        replies: Its replies, turn by turn.
        differences: Where greedy ones leave the baseline's, turn by turn.
    """

    case: Case
    arm: str
    replies: tuple[Reply, ...]
    differences: tuple[Difference | None, ...] = ()


class Runner:
    """Lets arms write.

    Attributes:
        engine: Tells what the target says where two replies part.
        arms: Who writes; the baseline is among them.
        baseline: Whose replies are the standard.
    """

    def __init__(self, engine: Engine, arms: Sequence[Arm], baseline: str) -> None:
        self.engine = engine
        self.arms = list(arms)
        self.baseline = baseline

    def warm_up(self, task: Task, tell: Callable[[str], None]) -> None:
        """Let everybody write a little that is not counted."""
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
        """Return the rows of a conversation of those arms that have none yet.

        Args:
            case: The conversation.
            number: How many came before it: who writes first depends on it.
            task: The temperature and seed in it are replaced.
            known: Rows of it that are there already.
            tell: Told the name of the arm that writes.

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
        """Yield the prompt of each turn; the replies to one have to be there before the next."""
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
                f"{num_prompt} tokens and a reply of {max_tokens} are more than the {room} that "
                f"{self.engine.name or 'the model'} takes",
                room,
            )

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the tokens of a conversation that waits for a reply."""
        tokenizer = self.engine.tokenizer
        if tokenizer.has_chat_template:
            return tokenizer.apply_chat_template(messages)
        return tokenizer.encode("\n\n".join(message["content"] for message in messages))
