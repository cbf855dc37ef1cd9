"""Measures replies whose text was predicted, such as an edited file.

The text is what the target writes by plain decoding, cut into 150 lines with equal numbers of
words. The predictions are that text with a few lines changed, with a third of them changed, and
another text. All arms write the same reply; tokens/s are compared with plain decoding, in rotating
order. At a temperature above 0 each repeat has a text of its own, and a small model does not repeat
itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from mlxspec.bench.sample import Arm, Reply, Task
from mlxspec.engine.engine import Engine
from mlxspec.measure.compare import first_difference
from mlxspec.trace.difference import Difference

_PROMPT = "This is the diary of a long journey.\n\n"
_NUM_LINES = 150
_NUM_EDITS = 5
_NAMES = "alpha beta gamma delta omega north south east west red green blue gold silver"
_WORDS = tuple(_NAMES.split(" "))

PREDICTIONS_HEADER = (
    f"{'arm':<14}{'prediction':<22}{'over plain':>11}{'tokens/forward':>16}{'accepted':>10}"
    f"{'rejected':>10}  reply"
)


@dataclass(frozen=True)
class PredictionFigures:
    """The figures of an arm with one prediction.

    Attributes:
        arm: The arm's drafter drafts in addition to the prediction.
        prediction: Description of the prediction; "none" without one.
        ratio: Tokens/s over those of plain decoding, the median of the repeats.
        rejected: Predicted tokens that were drafted and not accepted.
        difference: The first difference from the plain reply; None if both are the same.
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


def predictions(text: str) -> dict[str, str]:
    """Return predictions of a text, keyed by their descriptions."""
    lines = _lines(text)
    every = max(1, len(lines) // _NUM_EDITS)
    return {
        f"{_NUM_EDITS} lines changed": _changed(lines, every, every // 2),
        "a third changed": _changed(lines, 3, 1),
        "another text": _changed(lines, 1, 0),
    }


def _lines(text: str) -> list[list[str]]:
    """Return the words of a text in `_NUM_LINES` lines, or a few more."""
    words = text.split(" ")
    size = max(1, len(words) // _NUM_LINES)
    return [words[start : start + size] for start in range(0, len(words), size)]


def _changed(lines: Sequence[Sequence[str]], every: int, first: int) -> str:
    """Return the lines as a text; line `first` of every `every` lines has other words."""
    edited = [
        _other_words(number, len(words)) if number % every == first else words
        for number, words in enumerate(lines)
    ]
    return " ".join(word for words in edited for word in words)


def _other_words(number: int, count: int) -> list[str]:
    return [f"{_WORDS[(number + place) % len(_WORDS)]}{number}" for place in range(count)]


def measure_predictions(
    engine: Engine, arms: Sequence[Arm], task: Task, repeats: int
) -> list[PredictionFigures]:
    """Return the figures of every arm with every prediction, and without one.

    The arms are those of mlxspec. Stop tokens do not end a reply. Each repeat has the next seed.
    """
    prompt = engine.tokenizer.encode(_PROMPT)
    plain: list[Reply] = []
    replies: dict[tuple[str, str], list[Reply]] = {}
    for repeat in range(repeats):
        own = replace(task, ignores_stop=True, seed=task.seed + repeat)
        plain.append(_write(arms[0], prompt, replace(own, num_draft_tokens=0)))
        texts = {"none": None, **predictions(engine.tokenizer.decode(plain[-1].tokens))}
        cases = [(arm, name) for arm in arms for name in texts]
        turn = repeat % len(cases)
        for arm, name in (*cases[turn:], *cases[:turn]):
            reply = _write(arm, prompt, replace(own, prediction=texts[name]))
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
