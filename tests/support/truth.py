"""The target's distribution after a prefix, and a draw from it: the truth of the lossless tests."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.params import SamplingParams
from tests.support.reference import ConcatCache, reference_logits, weights_of


class Computed(dict):
    """A table whose entries are computed when they are first asked for."""

    def __init__(self, compute: Callable[[Any], Any]):
        super().__init__()
        self._compute = compute

    def __missing__(self, key):
        self[key] = self._compute(key)
        return self[key]


class Target:
    """A model as functions: from prefix to logits and to probabilities; results are cached."""

    def __init__(self, model, kind: str = "full", ring: tuple[int, int] = (12, 2)):
        """`kind` is that of `tiny.make_cache`; `ring` is its size and attention sinks."""
        self.model, self.kind = model, kind
        self.ring = ring if "rotating" in kind else None
        self.bits = {"int8": 8, "int4": 4}.get(kind)
        self._weights = {} if self.bits else weights_of(model)
        self._logits: dict[tuple[int, ...], np.ndarray] = {}
        self._caches: dict[tuple[int, ...], ConcatCache] = {}

    def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
        if prefix not in self._logits:
            self._logits[prefix] = self._compute(prefix)
        return self._logits[prefix]

    def distribution(
        self, prefix: tuple[int, ...], sampling: SamplingParams, prompt_length: int
    ) -> np.ndarray:
        return exact_distribution(self.logits(prefix), sampling, prefix, prefix[prompt_length:])

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(np.argmax(self.logits(tuple(tokens)))))
        return tokens[len(prompt) :]

    def _compute(self, prefix: tuple[int, ...]) -> np.ndarray:
        if self.bits:
            return self._compute_quantised(prefix)
        visible = None
        if self.ring:
            size, keep = self.ring
            age = np.subtract.outer(np.arange(len(prefix)), np.arange(len(prefix)))
            kept = np.arange(len(prefix))[None] < keep
            visible = (age >= 0) & ((age < size - keep) | kept)
        return reference_logits(self.model, list(prefix), visible, self._weights)[-1]

    def _compute_quantised(self, prefix: tuple[int, ...]) -> np.ndarray:
        cache = self._cache_before(prefix)
        tokens = mx.array([prefix[-1:]])
        hidden, _ = self.model.hidden_states(tokens, cache, len(prefix) - 1, {None: None})
        self._caches[prefix] = cache
        return np.array(self.model.logits(hidden)[0, -1], np.float64)

    def _cache_before(self, prefix: tuple[int, ...]) -> "QuantisedConcatCache":
        if len(prefix) == 1:
            return QuantisedConcatCache(self.bits)
        if prefix[:-1] not in self._caches:
            self._compute_quantised(prefix[:-1])
        return self._caches[prefix[:-1]].copy()


class QuantisedConcatCache(ConcatCache):
    """Every row goes through `mx.quantize` separately before it is stored."""

    def __init__(self, bits: int):
        super().__init__()
        self.bits = bits

    def stage(self, layer, keys, values):
        return super().stage(layer, self._squeeze(keys), self._squeeze(values))

    def copy(self):
        other = QuantisedConcatCache(self.bits)
        other.rows = dict(self.rows)
        return other

    def _squeeze(self, rows):
        packed = mx.quantize(rows, group_size=32, bits=self.bits)
        return mx.dequantize(*packed, group_size=32, bits=self.bits)


def exact_distribution(logits, sampling: SamplingParams, context, reply) -> np.ndarray:
    """The distribution of `mlxspec.verify.distribution` in NumPy float64, one token at a time."""
    logits = logits.astype(np.float64).copy()
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    for token in set(context):
        factor = sampling.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in set(reply):
        count = list(reply).count(token)
        logits[token] -= sampling.presence_penalty + sampling.frequency_penalty * count
    if sampling.temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    if sampling.filter_order == "mlx-lm":
        whole, rest = (_as_mlx_lm(logits, sampling, is_on) for is_on in (False, True))
    else:
        whole, rest = (_as_hugging_face(logits, sampling, is_on) for is_on in (False, True))
    return (1 - sampling.xtc_probability) * whole + sampling.xtc_probability * rest


def _as_hugging_face(logits, sampling, has_xtc):
    probs = _softmax(logits / sampling.temperature)
    for cut in (_top_k, _top_p, _min_p, *([_xtc] if has_xtc else [])):
        probs = cut(probs, sampling)
    return probs


def _as_mlx_lm(logits, sampling, has_xtc):
    probs = _softmax(logits)
    for cut in (_top_p, _min_p, *([_xtc] if has_xtc else []), _top_k):
        probs = cut(probs, sampling)
    return _softmax(np.where(probs > 0, logits, -np.inf) / sampling.temperature)


def _top_k(probs, sampling):
    return (
        _cut(probs, np.argsort(-probs, kind="stable")[: sampling.top_k])
        if sampling.top_k
        else probs
    )


def _top_p(probs, sampling):
    if sampling.top_p >= 1:
        return probs
    order = np.argsort(-probs, kind="stable")
    last = order[int(np.searchsorted(np.cumsum(probs[order]), sampling.top_p - 1e-12))]
    return _cut(probs, np.flatnonzero(probs >= probs[last]))


def _min_p(probs, sampling):
    if not sampling.min_p:
        return probs
    best = np.argsort(-probs, kind="stable")[: sampling.min_tokens_to_keep]
    return _cut(probs, [*np.flatnonzero(probs >= sampling.min_p * probs.max()), *best])


def _xtc(probs, sampling):
    choices = [token for token, prob in enumerate(probs) if prob > sampling.xtc_threshold]
    least = min(probs[choices], default=1)
    gone = {token for token in choices if probs[token] > least} - set(sampling.xtc_special_tokens)
    return _cut(probs, [token for token in range(len(probs)) if token not in gone])


def _softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def _cut(probs, kept):
    mask = np.zeros(len(probs), bool)
    mask[kept] = True
    return np.where(mask, probs, 0) / probs[mask].sum()


BLOCK = 128


def draw_by_hand(probs, noise):
    """Return the token that the noise selects from (V,) probabilities, and the margin.

    The block of the vocabulary is drawn first, then the token, each with its own noise.

    The margin is the smaller of both stages: the best score less the second best.
    """
    probs, noise = np.asarray(probs, np.float64), np.asarray(noise, np.float64)
    if len(probs) <= BLOCK:
        return largest(probs, noise)
    blocks = [probs[start : start + BLOCK] for start in range(0, len(probs), BLOCK)]
    block, gap = largest([part.sum() for part in blocks], noise[BLOCK:])
    inside, gap_inside = largest(blocks[block], noise[: len(blocks[block])])
    return block * BLOCK + inside, min(gap, gap_inside)


def largest(probs, noise):
    with np.errstate(divide="ignore"):
        scores = np.log(probs) + noise
    second, first = np.sort(scores)[-2:]
    return int(scores.argmax()), float(first - second)
