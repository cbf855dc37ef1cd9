"""A recipe: all settings that determine the result of training, in one TOML file.

    kind = "eagle3"
    tokens = 1_000_000
    learning_rate = 1e-3

Settings that only one kind of drafter has are in the table `[options]`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError
from mlxspec.files import NotTextError, asset, read_text
from mlxspec.params.checks import real, text, whole, wrong_type
from mlxspec.params.setting import Range, check_fields, number, setting, whole_number

_COUNT = whole_number("1 or more", least=1)
_ABOVE_0 = number("above 0", lambda value: value > 0)
_NOT_NEGATIVE = number("0 or more", lambda value: value >= 0)
_TEXT = Range(str, "a text", text)


@dataclass(frozen=True)
class Recipe:
    """How to train one drafter; `options` are the settings of its kind."""

    kind: str = setting("", _TEXT, '"medusa", "eagle3", "exit" or "draft-model"')
    tokens: int = setting(1_000_000, _COUNT, "assistant tokens; a shorter corpus is repeated")
    batch_tokens: int = setting(1024, _COUNT, "fewest a step; conversations are never cut")
    learning_rate: float = setting(1e-3, _ABOVE_0, "the maximum; a cosine takes it down to 0")
    warmup: float = setting(
        0.03,
        number("0 or more and below 1", lambda value: 0 <= value < 1),
        "share of the tokens in which the rate rises to the maximum",
    )
    weight_decay: float = setting(0.0, _NOT_NEGATIVE, "that of AdamW")
    max_gradient: float = setting(1.0, _ABOVE_0, "maximum norm; a longer gradient is scaled down")
    draft_vocab_size: int = setting(12_288, _COUNT, "most frequent tokens, which can be drafted")
    evaluate_every: int = setting(100_000, _COUNT, "assistant tokens between two evaluations")
    num_evaluated: int = setting(64, _COUNT, "held-out conversations in an evaluation")
    patience: int = setting(0, whole_number(), "evaluations without a gain that end it; 0 for none")
    checkpoint_seconds: float = setting(120.0, _NOT_NEGATIVE, "seconds between two checkpoints")
    seed: int = setting(
        0, whole_number("0 or more, and below 2^64", most=(1 << 64) - 1), "of the first weights"
    )
    start: str = setting("", _TEXT, 'file of a drafter of this kind and target; "" for none')
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.options, Mapping):
            raise wrong_type("options", "a table", self.options)


def load_recipe(path: str | Path) -> Recipe:
    """Return the recipe of a TOML file, or raise `MlxspecError`."""
    try:
        settings = tomllib.loads(read_text(Path(path)))
    except (OSError, NotTextError, tomllib.TOMLDecodeError) as error:
        raise MlxspecError(f"{path} is not a recipe that can be read ({error})") from error
    names = [one.name for one in fields(Recipe)]
    if unknown := sorted(set(settings) - set(names)):
        raise MlxspecError(
            f"{path} sets {unknown[0]!r}; a recipe takes {', '.join(names)} "
            "(settings of one kind of drafter stand in [options])"
        )
    if "kind" not in settings:
        raise MlxspecError(f"{path} does not say what to train: set kind")
    try:
        return Recipe(**settings)
    except ValueError as error:
        raise MlxspecError(f"{path}: {error}") from error


def default_recipe(kind: str) -> Recipe:
    """Return the recipe that comes with mlxspec for a kind of drafter."""
    return load_recipe(asset(f"recipes/{kind}.toml"))


def checked_options(recipe: Recipe, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a recipe; types are int, float, and int or None."""
    checked: dict[str, Any] = {}
    for name, value in recipe.options.items():
        if name not in types:
            raise ValueError(f"{recipe.kind!r} has no option {name!r}; it takes {', '.join(types)}")
        title, is_float = f"the option {name} of the recipe", types[name] is float
        checked[name] = (
            real(title, value, "0 or more", lambda n: n >= 0) if is_float else whole(title, value)
        )
    return checked
