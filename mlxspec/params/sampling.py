"""The settings of the target's law: what is done to its logits before a token is drawn.

Plain numbers, checked; `sampling` computes with them. They can be read and changed before MLX is
loaded, which takes longer than opening a screen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from mlxspec.params.checks import biases, choice, real, settle, token_ids, whole

FilterOrder = Literal["hugging-face", "mlx-lm"]
"""`hugging-face`: temperature, top-k, top-p, min-p, XTC, each filter on what the temperature made;
`mlx-lm`: top-p, min-p, XTC, top-k, all on the law at temperature 1, and the temperature last."""

_MIN_TEMPERATURE = 1e-5
"""Below it, logits divided by the temperature may leave float32."""


@dataclass(frozen=True)
class Law:
    """What is done to the logits before a token is drawn.

    Attributes:
        temperature: 0 takes the most probable token, the lowest id where several are.
        top_k: Keep the k most probable tokens, of tied ones those with the lowest ids; 0 keeps all.
        top_p: Keep the most probable tokens that together reach this mass, and those tied with the
            last; 1 keeps all.
        min_p: Keep tokens at least this share as probable as the most probable; 0 keeps all.
        min_tokens_to_keep: Most probable tokens that min-p never cuts off.
        xtc_probability: How often, at each token anew, the most probable choices are excluded: all
            tokens above `xtc_threshold` but the least probable of them. The law is the mixture
            of the two cases.
        xtc_threshold: Tokens above this probability count as such choices.
        xtc_special_tokens: Tokens that are never excluded so.
        filter_order: In which order filters and temperature are applied.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that stand
            in prompt or reply (CTRL, Keskar et al. 2019, https://arxiv.org/abs/1909.05858).
        presence_penalty: Subtracted from the logits of tokens that stand in the reply.
        frequency_penalty: Subtracted once per occurrence in the reply.
        logit_bias: Added to the logits of these token ids.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens_to_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_special_tokens: tuple[int, ...] = ()
    filter_order: FilterOrder = "hugging-face"

    def __post_init__(self) -> None:
        least = _MIN_TEMPERATURE
        settle(
            self,
            temperature=real(
                "temperature", self.temperature, f"0, or {least} and more", _is_temperature
            ),
            top_k=whole("top_k", self.top_k, "0 (for all) or more"),
            top_p=real("top_p", self.top_p, "more than 0 and at most 1", lambda p: 0 < p <= 1),
            min_p=real("min_p", self.min_p, "at least 0 and at most 1", lambda p: 0 <= p <= 1),
            repetition_penalty=real(
                "repetition_penalty",
                self.repetition_penalty,
                "finite and more than 0, 1 for none",
                lambda penalty: penalty > 0,
            ),
            logit_bias=biases("logit_bias", self.logit_bias),
            min_tokens_to_keep=whole(
                "min_tokens_to_keep", self.min_tokens_to_keep, "1 or more", least=1
            ),
            xtc_probability=real(
                "xtc_probability",
                self.xtc_probability,
                "at least 0 and at most 1",
                lambda p: 0 <= p <= 1,
            ),
            xtc_threshold=real(
                "xtc_threshold",
                self.xtc_threshold,
                "at least 0 and at most 0.5",
                lambda p: 0 <= p <= 0.5,
            ),
            xtc_special_tokens=tuple(
                whole("xtc_special_tokens", token)
                for token in token_ids("xtc_special_tokens", self.xtc_special_tokens)
            ),
            filter_order=choice("filter_order", self.filter_order, get_args(FilterOrder)),
        )
        for name in ("presence_penalty", "frequency_penalty"):
            number = real(name, getattr(self, name), "finite, 0 for none", math.isfinite)
            settle(self, **{name: number})

    @property
    def is_greedy(self) -> bool:
        """Whether the law puts all mass on one token."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """Whether the law depends on which tokens stand before."""
        neutral = (1.0, 0.0, 0.0)
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != neutral

    @property
    def has_filters(self) -> bool:
        """Whether some tokens are cut off."""
        return bool(self.top_k or self.top_p < 1 or self.min_p or self.xtc_probability)

    def describe(self) -> dict[str, Any]:
        """Return the settings that are not neutral, by name."""
        neutral = Law()
        names = (item.name for item in fields(self))
        return {
            name: getattr(self, name)
            for name in names
            if name == "temperature" or getattr(self, name) != getattr(neutral, name)
        }


def _is_temperature(value: float) -> bool:
    return value == 0 or value >= _MIN_TEMPERATURE
