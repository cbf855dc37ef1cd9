"""A recipe: every number that decides what training gives, in one TOML file.

    kind = "eagle3"
    tokens = 1_000_000
    learning_rate = 1e-3

Settings of one kind of drafter alone stand in a table of their own, `[options]`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError


@dataclass(frozen=True)
class Recipe:
    """How to train one drafter.

    Attributes:
        kind: What is trained: "medusa", "eagle3", "exit" or "draft-model".
        tokens: Assistant tokens to learn from in all; the corpus is repeated if it is shorter.
        batch_tokens: Assistant tokens per step, at least; conversations are never cut.
        learning_rate: At its peak; warmed up linearly, then a cosine down to 0.
        warmup: Share of the tokens that the warm-up takes.
        weight_decay: Of AdamW.
        max_gradient: Norm that a step's gradient is cut to.
        draft_vocab_size: Most frequent tokens of the corpus that are drafted.
        evaluate_every: Assistant tokens between two looks at held-out conversations.
        num_evaluated: Held-out conversations looked at.
        patience: Looks without a better mean acceptance length before training stops; 0 for never.
        checkpoint_seconds: Time between two checkpoints.
        seed: Of the random weights.
        start: File of a drafter of this kind for the same target, to begin with; "" for none.
        start: File of a drafter of the kind, and for the same target, to begin with; "" for none.
        options: Settings of the kind.
    """

    kind: str
    tokens: int = 1_000_000
    batch_tokens: int = 1024
    learning_rate: float = 1e-3
    warmup: float = 0.03
    weight_decay: float = 0.0
    max_gradient: float = 1.0
    draft_vocab_size: int = 12_288
    evaluate_every: int = 100_000
    num_evaluated: int = 64
    patience: int = 0
    checkpoint_seconds: float = 120.0
    seed: int = 0
    start: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return what a TOML file of this recipe would hold."""
        return asdict(self)


def load_recipe(path: str | Path) -> Recipe:
    """Return the recipe of a TOML file.

    Raises:
        MlxspecError: The file cannot be read, is no TOML, names a setting that is not known or
            gives one a value of the wrong type.
    """
    try:
        settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MlxspecError(f"{path} is no recipe that can be read ({error})") from error
    return recipe_of(settings, str(path))


def recipe_of(settings: Mapping[str, Any], name: str) -> Recipe:
    """Return the recipe of settings by name; see `load_recipe` for what is raised."""
    types = {one.name: one.type for one in fields(Recipe)}
    unknown = sorted(set(settings) - set(types))
    if unknown:
        raise MlxspecError(
            f"{name} sets {unknown[0]!r}; a recipe takes {', '.join(types)} "
            "(settings of one kind of drafter stand in [options])"
        )
    if "kind" not in settings:
        raise MlxspecError(f"{name} does not say what to train: set kind")
    values = {key: _value(name, key, value, str(types[key])) for key, value in settings.items()}
    return Recipe(**values)


def _value(name: str, key: str, value: Any, wanted: str) -> Any:
    if wanted == "<class 'float'>" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    kind = {"<class 'int'>": int, "<class 'float'>": float, "<class 'str'>": str}.get(wanted, dict)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise MlxspecError(f"{name} sets {key} to {value!r}; it must be of type {kind.__name__}")
    if isinstance(value, int | float) and value < 0:
        raise MlxspecError(f"{name} sets {key} to {value}; it cannot be negative")
    return value
