"""Measures replies whose text was predicted, as of a file that is edited.

The prompt is a file of 150 lines and the first lines of its copy, so the target goes on copying.
The predictions are that file with a few lines changed, with a third of them changed, and another
text. All arms write the same reply; tokens/s are compared with plain decoding, in rotating order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from mlxspec.bench.sample import Arm, Reply, Task
from mlxspec.engine.engine import Engine
from mlxspec.measure.compare import first_difference
from mlxspec.trace.difference import Difference

_NUM_LINES = 150
_NUM_EDITS = 5
_GIVEN_LINES = 4  # of the copy: enough to see that it is one
_NAMES = "alpha beta gamma delta omega north south east west red green blue gold silver iron stone"
_WORDS = tuple(_NAMES.split(" "))

PREDICTIONS_HEADER = (
    f"{'arm':<14}{'prediction':<22}{'over plain':>11}{'tokens/forward':>16}{'accepted':>10}"
    f"{'rejected':>10}  reply"
)


@dataclass(frozen=True)
class PredictionFigures:
    """The figures of an arm with one prediction.

    Attributes:
        arm: Name of the arm, whose drafter drafts beside the prediction.
        prediction: What was predicted, in words; "none" without a prediction.
        ratio: Tokens/s over those of plain decoding, the median of the repeats.
        tokens_per_forward: Tokens per target forward.
        accepted: Predicted tokens that were accepted.
        rejected: Predicted tokens that were drafted and not accepted.
        difference: Where the reply leaves the plain one; None where both are the same.
    """

    arm: str
    prediction: str
    ratio: float
    tokens_per_forward: float
    accepted: int
    rejected: int
    difference: Difference | None

    @property
    def line(self) -> str:
        """A line of the table below `PREDICTIONS_HEADER`."""
        reply = self.difference.describe() if self.difference else "that of plain"
        return (
            f"{self.arm:<14}{self.prediction:<22}{self.ratio:>11.2f}"
            f"{self.tokens_per_forward:>16.2f}{self.accepted:>10}{self.rejected:>10}  {reply}"
        )


def file_lines() -> list[str]:
    """Return the lines of a file that holds no line twice."""
    lines = []
    for number in range(_NUM_LINES):
        first = _WORDS[number * 7 % len(_WORDS)]
        second = _WORDS[(number * 3 + number // len(_WORDS)) % len(_WORDS)]
        lines.append(f"{first}_{second} = load('{second}', size={10 + number * 13 % 97})")
    return lines


def prompt_text() -> str:
    """Return the prompt: the file, and the first lines of its copy."""
    file, copy = "\n".join(file_lines()), "\n".join(file_lines()[:_GIVEN_LINES])
    return f"{file}\n\n# the same file again\n\n{copy}\n"


def predictions() -> dict[str, str]:
    """Return the predicted texts by what they are."""
    lines = file_lines()[_GIVEN_LINES:]
    every = len(lines) // _NUM_EDITS
    return {
        f"{_NUM_EDITS} lines changed": _changed(lines, every, every // 2),
        "a third changed": _changed(lines, 3, 1),
        "another text": "\n".join(f"Chapter {n}: the {word} of them all." for n, word in _others()),
    }


def _changed(lines: Sequence[str], every: int, first: int) -> str:
    edited = (
        line.replace("load(", "read(path, ") if number % every == first else line
        for number, line in enumerate(lines)
    )
    return "\n".join(edited)


def _others() -> Iterator[tuple[int, str]]:
    return enumerate(_WORDS * (_NUM_LINES // len(_WORDS)))


def measure_predictions(
    engine: Engine, arms: Sequence[Arm], task: Task, repeats: int
) -> list[PredictionFigures]:
    """Return the figures of every arm with every prediction, and without one.

    Args:
        engine: Gives the tokenizer, and the logits where two replies differ.
        arms: Arms of mlxspec.
        task: The settings of a reply; stop tokens do not end it.
        repeats: How often everything is measured.
    """
    prompt = engine.tokenizer.encode(prompt_text())
    texts: dict[str, str | None] = {"none": None, **predictions()}
    cases = [(arm, name) for arm in arms for name in texts]
    plain: list[Reply] = []
    replies: dict[tuple[str, str], list[Reply]] = {}
    for repeat in range(repeats):
        task = replace(task, ignores_stop=True)
        plain.append(_write(arms[0], prompt, replace(task, num_draft_tokens=0)))
        turn = repeat % len(cases)
        for arm, name in (*cases[turn:], *cases[:turn]):
            reply = _write(arm, prompt, replace(task, prediction=texts[name]))
            replies.setdefault((arm.name, name), []).append(reply)
    return [_figures(engine, prompt, case, found, plain) for case, found in replies.items()]


def _write(arm: Arm, prompt: list[int], task: Task) -> Reply:
    arm.begin()
    return arm.write(prompt, task)


def _figures(
    engine: Engine,
    prompt: list[int],
    case: tuple[str, str],
    replies: Sequence[Reply],
    plain: Sequence[Reply],
) -> PredictionFigures:
    pairs = zip(replies, plain, strict=True)
    last = replies[-1]
    return PredictionFigures(
        *case,
        ratio=median(_speed(reply) / _speed(other) for reply, other in pairs),
        tokens_per_forward=len(last.tokens) / last.forwards,
        accepted=last.stats["accepted_prediction_tokens"],
        rejected=last.stats["rejected_prediction_tokens"],
        difference=first_difference(engine, prompt, last.tokens, plain[-1].tokens),
    )


def _speed(reply: Reply) -> float:
    return float(reply.stats["generation_tps"])
