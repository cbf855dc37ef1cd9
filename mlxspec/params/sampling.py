"""The sampling params: what changes the target's logits before a token is drawn.

They are plain numbers, checked; the code that computes with them is in `verify/`. They need no MLX,
as importing MLX takes longer than opening a screen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from mlxspec.params.checks import biases, real, token_ids, whole
from mlxspec.params.setting import (
    Range,
    check_fields,
    number,
    one_of,
    setting,
    whole_number,
)

FilterOrder = Literal["hugging-face", "mlx-lm"]
"""`hugging-face`: temperature, top-k, top-p, min-p, XTC, so filters see the probabilities after the
temperature; `mlx-lm`: top-p, min-p, XTC, top-k at temperature 1, and the temperature last."""

_MIN_TEMPERATURE = 1e-5
"""Below it, logits divided by the temperature may leave float32, so it counts as 0."""

_TEMPERATURES = f"0 or more; below {_MIN_TEMPERATURE} it counts as 0"
_TOP_KS = "1 or more, or 0 or -1 for all"

_SHARE = number("at least 0 and at most 1", lambda p: 0 <= p <= 1)
_PENALTY = number("finite, 0 for none", math.isfinite)
_TYPED_TEMPERATURE = number("from 0 to 2, as more is noise", lambda degree: 0 <= degree <= 2)
_TYPED_PENALTY = number("from -2 to 2, 0 for none", lambda penalty: -2 <= penalty <= 2)
_AS_IN_MLX_LM = "it is there for scripts written for mlx-lm"


def _temperature(name: str, value: object) -> float:
    found = real(name, value, _TEMPERATURES, lambda temperature: temperature >= 0)
    return found if found >= _MIN_TEMPERATURE else 0.0


def _top_k(name: str, value: object) -> int:
    return max(0, whole(name, value, _TOP_KS, least=-1))


def _ids(name: str, value: object) -> tuple[int, ...]:
    return tuple(whole(name, token) for token in token_ids(name, value))


@dataclass(frozen=True)
class SamplingParams:
    """The settings that turn logits into the distribution of the next token.

    What a field does is said where it is declared. Of some there is more to say:

    Attributes:
        temperature: 0 chooses the most probable token, of tied ones the lowest id.
        top_k: Of tied tokens, those with the lowest ids are kept.
        top_p: Tokens tied with the last one are kept too.
        xtc_probability: Probability, for each token, that XTC excludes the most probable tokens:
            all above `xtc_threshold` but the least probable of them. The distribution is the
            mixture of both cases.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that stand
            in prompt or reply (CTRL, Keskar et al. 2019, https://arxiv.org/abs/1909.05858).
    """

    temperature: float = setting(
        0.0,
        Range(float, _TEMPERATURES, _temperature),
        "temperature; 0 takes the likeliest token, 1 draws as the model would",
        flag="--temp",
        word="temp",
        noun="NUMBER",
        typed=_TYPED_TEMPERATURE,
    )
    top_k: int = setting(
        0,
        Range(int, f"a whole number, {_TOP_KS}", _top_k),
        "keep this many of the likeliest tokens; 0 keeps all",
        noun="COUNT",
    )
    top_p: float = setting(
        1.0,
        _SHARE,
        "keep the likeliest tokens that have this share together; 1 keeps all, 0 the first alone",
        noun="SHARE",
    )
    min_p: float = setting(
        0.0,
        _SHARE,
        "keep tokens with at least this share of the best one's probability; 0 keeps all",
        noun="SHARE",
    )
    repetition_penalty: float = setting(
        1.0,
        number("finite and more than 0, 1 for none", lambda penalty: penalty > 0),
        "makes tokens of prompt and reply less likely; 1 for none",
        noun="NUMBER",
        typed=number("more than 0, at most 2; 1 for none", lambda penalty: 0 < penalty <= 2),
    )
    presence_penalty: float = setting(
        0.0,
        _PENALTY,
        "makes tokens of the reply less likely; 0 for none",
        noun="NUMBER",
        typed=_TYPED_PENALTY,
    )
    frequency_penalty: float = setting(
        0.0,
        _PENALTY,
        "makes tokens of the reply less likely, once per occurrence; 0 for none",
        noun="NUMBER",
        typed=_TYPED_PENALTY,
    )
    logit_bias: Mapping[int, float] = setting(
        {},
        Range(None, "a mapping of token ids to numbers", biases),
        "added to the logits of these tokens",
        absent="it names tokens by their ids, which only a program knows",
    )
    min_tokens_to_keep: int = setting(
        1,
        whole_number("1 or more", least=1),
        "most probable tokens that min_p never cuts off",
        absent=_AS_IN_MLX_LM,
    )
    xtc_probability: float = setting(
        0.0,
        _SHARE,
        "how often the likeliest tokens are excluded (XTC); 0 for never",
        absent=_AS_IN_MLX_LM,
    )
    xtc_threshold: float = setting(
        0.1,
        number("at least 0 and at most 0.5", lambda p: 0 <= p <= 0.5),
        "tokens above this probability can be excluded so",
        absent=_AS_IN_MLX_LM,
    )
    xtc_special_tokens: tuple[int, ...] = setting(
        (),
        Range(None, "token ids", _ids),
        "tokens that are never excluded so",
        absent=_AS_IN_MLX_LM,
    )
    filter_order: FilterOrder = setting(
        "hugging-face",
        one_of(get_args(FilterOrder)),
        "in which order filters and temperature are applied",
        absent=_AS_IN_MLX_LM,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the distribution has all its mass on one token."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """Whether the logits of a token change with its earlier occurrences."""
        neutral = (1.0, 0.0, 0.0)
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != neutral

    @property
    def has_filters(self) -> bool:
        """Whether some tokens are cut off."""
        return bool(self.top_k or self.top_p < 1 or self.min_p or self.xtc_probability)

    def describe(self) -> dict[str, Any]:
        """Return the settings that are not neutral, by name."""
        neutral = SamplingParams()
        names = (item.name for item in fields(self))
        return {
            name: getattr(self, name)
            for name in names
            # The temperature is always there: 0 is neutral, and means greedy.
            if name == "temperature" or getattr(self, name) != getattr(neutral, name)
        }


GREEDY = SamplingParams()
"""The sampling params where nothing is said."""
