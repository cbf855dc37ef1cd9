"""A recipe: all settings that determine the result of training, in one TOML file.

    kind = "eagle3"
    tokens = 1_000_000
    learning_rate = 1e-3

Settings that only one kind of drafter has are in the table `[options]`.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from mlxspec.errors import MlxspecError
from mlxspec.text_files import NotTextError, read_text


@dataclass(frozen=True)
class Recipe:
    """How to train one drafter.

    Attributes:
        kind: "medusa", "eagle3", "exit" or "draft-model".
        tokens: Assistant tokens to train on; a shorter corpus is repeated.
        batch_tokens: Minimum of assistant tokens per step; conversations are never cut.
        learning_rate: The maximum; after a linear warm-up the rate follows a cosine down to 0.
        warmup: Share of the tokens for the warm-up.
        max_gradient: Maximum norm of a step's gradient; longer ones are scaled down.
        draft_vocab_size: Number of most frequent tokens that can be drafted.
        evaluate_every: Assistant tokens between two evaluations.
        num_evaluated: Number of held-out conversations in an evaluation.
        patience: Training stops after this number of evaluations without a better mean acceptance
            length; 0 for never.
        start: File of a drafter of the same kind and target to start from; "" for none.
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

    def __post_init__(self) -> None:
        for name in ("tokens", "batch_tokens", "draft_vocab_size", "evaluate_every"):
            _check(name, getattr(self, name), "1 or more", getattr(self, name) >= 1)
        _check("num_evaluated", self.num_evaluated, "1 or more", self.num_evaluated >= 1)
        for name in ("learning_rate", "max_gradient"):
            _check(name, getattr(self, name), "above 0", 0 < getattr(self, name) < math.inf)
        for name in ("weight_decay", "patience", "checkpoint_seconds"):
            _check(name, getattr(self, name), "0 or more", getattr(self, name) >= 0)
        _check("warmup", self.warmup, "0 or more and below 1", 0 <= self.warmup < 1)
        _check("seed", self.seed, "0 or more, and below 2^64", 0 <= self.seed < 1 << 64)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a TOML file holds them."""
        return asdict(self)


def load_recipe(path: str | Path) -> Recipe:
    """Return the recipe of a TOML file.

    Raises `MlxspecError` if the file cannot be read, or contains an unknown setting or a wrong
    value.
    """
    try:
        settings = tomllib.loads(read_text(Path(path)))
    except (OSError, NotTextError, tomllib.TOMLDecodeError) as error:
        raise MlxspecError(f"{path} is not a recipe that can be read ({error})") from error
    return recipe_of(settings, str(path))


def recipe_of(settings: Mapping[str, Any], name: str) -> Recipe:
    """Return the recipe with these settings; raises what `load_recipe` raises."""
    types = {one.name: one.type for one in fields(Recipe)}
    unknown = sorted(set(settings) - set(types))
    if unknown:
        raise MlxspecError(
            f"{name} sets {unknown[0]!r}; a recipe takes {', '.join(types)} "
            "(settings of one kind of drafter stand in [options])"
        )
    if "kind" not in settings:
        raise MlxspecError(f"{name} does not say what to train: set kind")
    values = {
        key: _value(f"{name} sets {key}", value, types[key]) for key, value in settings.items()
    }
    try:
        return Recipe(**values)
    except ValueError as error:
        raise MlxspecError(f"{name}: {error}") from error


def checked_options(recipe: Recipe, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a recipe after a check against their types.

    A type is a number, a text, a `Literal`, or one of these or None. Raises `MlxspecError` if an
    option is unknown, of the wrong type, or negative.
    """
    unknown = sorted(set(recipe.options) - set(types))
    if unknown:
        raise MlxspecError(
            f"{recipe.kind!r} has no option {unknown[0]!r}; it takes {', '.join(types)}"
        )
    options = {
        name: _value(f"the recipe sets the option {name}", value, types[name])
        for name, value in recipe.options.items()
    }
    for name, value in options.items():
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise MlxspecError(f"the recipe sets the option {name} to {value}; give 0 or more")
    return options


def _value(what: str, value: Any, wanted: Any) -> Any:
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise MlxspecError(f"{what} to {value!r}; choose from {', '.join(get_args(wanted))}")
        return value
    allowed = (dict,) if get_origin(wanted) is Mapping else get_args(wanted) or (wanted,)
    if float in allowed and type(value) is int:
        value = float(value)  # TOML has integers of their own; a user may write 1 for 1.0
    if type(value) not in allowed:
        raise MlxspecError(f"{what} to {value!r}; it must be of type {allowed[0].__name__}")
    return value


def _check(name: str, value: object, allowed: str, is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError(f"{name} must be {allowed}; got {value}")
