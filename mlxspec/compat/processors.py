"""mlx-lm's logits processors: a bias, and penalties for tokens of a window of recent text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.params import LogitsProcessor


@dataclass(frozen=True)
class LogitBias:
    """Adds a number to the logits of some tokens."""

    bias: Mapping[int, float]

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return (1, V) logits.

        Raises:
            ValueError: A token is not in the vocabulary.
        """
        most = logits.shape[-1] - 1
        wrong = [token for token in self.bias if not 0 <= token <= most]
        if wrong:  # MLX would write outside the array
            raise ValueError(f"logit_bias names token {wrong[0]}; allowed are 0 to {most}")
        ids = mx.array(list(self.bias), mx.int32)
        return logits.at[:, ids].add(mx.array(list(self.bias.values()), logits.dtype))


@dataclass(frozen=True)
class _Penalty:
    """Lowers the logits of tokens that occur in the last `context_size` tokens; 0 counts all."""

    penalty: float
    context_size: int

    def __post_init__(self) -> None:
        if not isinstance(self.context_size, int) or self.context_size < 0:
            raise ValueError(
                f"a context size must be a whole number, 0 or more; got {self.context_size!r}"
            )

    def _seen(self, tokens: mx.array) -> mx.array:
        return tokens[-self.context_size :]


class RepetitionPenalty(_Penalty):
    """Divides positive and multiplies negative logits (https://arxiv.org/abs/1909.05858)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty < 0:
            raise ValueError(f"repetition_penalty must be 0 or more; got {self.penalty}")

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        seen = self._seen(tokens)
        old = logits[:, seen]  # a token that occurs twice is penalised only once
        logits[:, seen] = mx.where(old < 0, old * self.penalty, old / self.penalty)
        return logits


class PresencePenalty(_Penalty):
    """Subtracts once from the logits of tokens that occur."""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        seen = self._seen(tokens)
        logits[:, seen] = logits[:, seen] - self.penalty
        return logits


class FrequencyPenalty(_Penalty):
    """Subtracts from the logits of a token for each of its occurrences."""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, self._seen(tokens)].subtract(self.penalty)


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None,
    repetition_penalty: float | None = None,
    repetition_context_size: int = 20,
    presence_penalty: float | None = None,
    presence_context_size: int = 20,
    frequency_penalty: float | None = None,
    frequency_context_size: int = 20,
) -> list[LogitsProcessor]:
    """Return mlx-lm's processors for these arguments, in its order.

    Args:
        logit_bias: Numbers to add to the logits, by token id.
        repetition_penalty: None and 0 switch it off.
        repetition_context_size: Number of last tokens that count; 0 for all.
        presence_penalty: None and 0 switch it off.
        presence_context_size: As above.
        frequency_penalty: None and 0 switch it off.
        frequency_context_size: As above.

    Raises:
        ValueError: A number is out of range.
    """
    processors: list[LogitsProcessor] = [LogitBias(dict(logit_bias))] if logit_bias else []
    penalties: list[tuple[Callable[[float, int], LogitsProcessor], float | None, int]] = [
        (RepetitionPenalty, repetition_penalty, repetition_context_size),
        (PresencePenalty, presence_penalty, presence_context_size),
        (FrequencyPenalty, frequency_penalty, frequency_context_size),
    ]
    return processors + [make(penalty, size) for make, penalty, size in penalties if penalty]
