"""The arms of mlxspec itself: one engine, and one drafter per arm.

A word of `--arms` is a word of `--drafter`; `plain` means `none`, and a plus sign joins drafters to
a pool. Every conversation starts with a new drafter: one that knows the reply would repeat it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any, Protocol

from mlxspec.budget import Budget
from mlxspec.drafters.base import Drafter
from mlxspec.drafting.auto import candidates, choose_drafter
from mlxspec.drafting.names import check_drafter
from mlxspec.drafting.registry import DrafterContext, build_drafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.trial import Trial, Watch, run_trial
from mlxspec.params import GenerationParams

PLAIN = "plain"


class Arm(Protocol):
    """A writer of replies: an engine with a drafter, or another project."""

    name: str

    def begin(self) -> None:
        """Start a conversation: forget all that the drafter learned in earlier ones."""

    def write(self, prompt: Sequence[int], params: GenerationParams) -> Trial:
        """Reply to a prompt that is in no cache; peers read length, temperature and seed alone."""


class OwnArm:
    """The engine with one drafter."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        make_drafter: Callable[[], Drafter],
        budget: Budget | None = None,
        **settings: Any,
    ) -> None:
        """`settings` replace those of every reply; without a budget the engine's own decides."""
        self.name, self.engine = name, engine
        self._make_drafter, self._budget, self._settings = make_drafter, budget, settings
        self._drafter = make_drafter()

    def begin(self) -> None:
        self._drafter = self._make_drafter()

    def write(self, prompt: Sequence[int], params: GenerationParams) -> Trial:
        self.engine.target.reset()
        params, watch = replace(params, **self._settings), Watch.after_collecting()
        return run_trial(
            self.engine, prompt, params, self._drafter, budget=self._budget, watch=watch
        )


def check_arms(names: Sequence[str]) -> None:
    """Raise ValueError for words that are not arms, before a model is loaded."""
    if not names:
        raise ValueError("--arms is empty: give words of --drafter, or plain")
    if len(set(names)) < len(names):
        raise ValueError(f"an arm stands twice in {', '.join(names)}: name each once")
    for name in names:
        check_drafter(_drafter_of(name), has_draft_model=False)


def own_arms(
    names: Sequence[str], context: DrafterContext, budget: Budget | None = None
) -> list[OwnArm]:
    """Return the arms that these words name; `budget` is as in `OwnArm`."""
    arms = []
    for name in names:
        drafter = _found(name, context)
        title = f"auto={drafter.replace(',', '+')}" if name == "auto" else name
        build = partial(build_drafter, drafter, context)
        arms.append(OwnArm(title, context.engine, build, budget))
    return arms


def plain_arm(context: DrafterContext) -> OwnArm:
    """Return plain decoding; under a grammar too, each token is computed by a forward."""
    return OwnArm(
        PLAIN, context.engine, partial(build_drafter, "none", context), num_draft_tokens=0
    )


def drafters_here(context: DrafterContext) -> list[str]:
    """Return the drafters that need no download, as words of `--arms`."""
    words = [word.replace(",", "+") for word in candidates(context.files) if word != "none"]
    return [*words, "model"] if context.options.draft_model and "model" not in words else words


def make_drafter(name: str, context: DrafterContext) -> Drafter:
    """Return a new drafter for an arm."""
    return build_drafter(_found(name, context), context)


def _found(name: str, context: DrafterContext) -> str:
    drafter = _drafter_of(name)
    return choose_drafter(context).drafter if drafter == "auto" else drafter


def _drafter_of(name: str) -> str:
    if name == PLAIN:
        return "none"
    return name if Path(expanduser(name)).exists() else name.replace("+", ",")


# ---- replies whose text was predicted, such as an edited file ---------------------------------

_LINES, _EDITS = 150, 5
_NAMES = "alpha beta gamma delta omega north south east west red green blue gold silver"
_WORDS = _NAMES.split(" ")


class PredictedArm:
    """An arm that gets a prediction: its plain reply, in which some lines are changed."""

    def __init__(self, arm: OwnArm, change: str, plain: OwnArm) -> None:
        """`change` is a key of `CHANGES`."""
        self.name, self.begin = f"{arm.name}, {change}", arm.begin
        self._arm, self._plain, self._change = arm, plain, CHANGES[change]

    def write(self, prompt: Sequence[int], params: GenerationParams) -> Trial:
        # plainly, before the time of the arm begins
        text = self._plain.engine.tokenizer.decode(self._plain.write(prompt, params).tokens)
        return self._arm.write(prompt, replace(params, prediction=self._change(text)))


def predicted_arms(names: Sequence[str], context: DrafterContext, budget: Budget) -> list[Arm]:
    """Return plain decoding, and every named arm without a prediction and with each of them."""
    plain = plain_arm(context)
    arms: list[Arm] = [plain]
    for arm in own_arms(names, context, budget):
        arms += [arm, *(PredictedArm(arm, change, plain) for change in CHANGES)]
    return arms


def _changed(text: str, most: int, every: int = 1) -> str:
    """Return a text in which one of `every` lines, at most `most`, has other words."""
    words = text.split(" ")
    size = max(1, len(words) // _LINES)
    lines = [words[start : start + size] for start in range(0, len(words), size)]
    every = max(every, len(lines) // most)
    for number in range(every // 2, len(lines), every):
        lines[number] = [
            f"{_WORDS[(number + place) % len(_WORDS)]}{number}"
            for place in range(len(lines[number]))
        ]
    return " ".join(word for line in lines for word in line)


CHANGES: Mapping[str, Callable[[str], str]] = {
    "5 lines": partial(_changed, most=_EDITS),
    "a third": partial(_changed, most=_LINES, every=3),
    "all": partial(_changed, most=_LINES * 2),
}
"""What is changed in a prediction, by name."""
