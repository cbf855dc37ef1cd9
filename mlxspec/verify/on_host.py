"""Verification on the host: the distributions of only the nodes that are reached.

On a CPU the host has the logits as soon as they are computed. So it follows the match rule down the
tree: it draws at the root, then at the child that holds the draw. A node that is not reached costs
nothing, while on the device every node costs the same. NumPy's exponentials, maxima and sorts take
a quarter to a tenth of the time of MLX's on an x86 CPU.
"""

from collections.abc import Sequence
from math import inf, nan

import numpy as np
from numpy.typing import NDArray

from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.verify.filters import filtered
from mlxspec.verify.noise import BLOCK

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def walk(
    tokens: Sequence[int],
    parents: Sequence[int],
    logits: Floats,
    sampling: SamplingParams,
    noise: Floats | None,
) -> Round:
    """Go down from the root while a child holds the token that the target draws at its parent.

    The (n_nodes, V) `logits` are those after processors, bias and penalties. `noise` is (levels,
    num_noises(V)) Gumbel noise by depth; None at temperature 0. The target's probability of a token
    is NaN if its parent was not reached.
    """
    path, told = [0], [nan] * len(tokens)
    while True:
        node = path[-1]
        probs = probs_of(sampling, logits[node])
        if noise is None:
            token = int(logits[node].argmax())  # in a tie the lowest id
        else:
            # A drafter may state a wrong max_depth of a lazy tree: never index beyond the noise.
            token = draw(probs, noise[min(len(path), len(noise)) - 1])
        children = [child for child in range(node + 1, len(tokens)) if parents[child] == node]
        for child in children:
            told[child] = float(probs[tokens[child]])
        matching = [child for child in children if tokens[child] == token]
        if not matching:
            return Round(
                tokens,
                parents,
                path,
                bonus_token=token,
                from_residual=bool(children),
                target_probs=[*told, float(probs[token])],
            )
        path.append(matching[0])  # of two equal siblings the first, as on the device


def probs_of(sampling: SamplingParams, logits: Floats) -> Floats:
    """Return the probabilities of (V,) adjusted logits; at temperature 0 those of temperature 1."""
    if sampling.is_greedy:
        return HOST.softmax(logits)
    probs: Floats = filtered(sampling, logits, HOST)
    return probs


def draw(probs: Floats, noise: Floats) -> int:
    """Return the draw that `noise.draw` makes from (V,) with (num_noises(V),) Gumbel noise."""
    if len(probs) <= BLOCK:
        return _largest(probs, noise)
    starts = np.arange(0, len(probs), BLOCK)
    block = _largest(np.add.reduceat(probs, starts), noise[BLOCK:])
    inside = probs[block * BLOCK : (block + 1) * BLOCK]
    return block * BLOCK + _largest(inside, noise[: len(inside)])


def top_tokens(logits: Floats, k: int) -> tuple[list[list[int]], list[list[float]]]:
    """Return the k most probable tokens of each row, best first, and their probabilities.

    The (n, V) logits are the target's, before all sampling params.
    """
    tokens, probs = zip(*(_top_of_row(row, k) for row in logits), strict=True)
    return list(tokens), list(probs)


def _top_of_row(row: Floats, k: int) -> tuple[list[int], list[float]]:
    candidates = _best_blocks(row, k)
    values = row[candidates]
    best = np.argpartition(values, len(values) - k)[-k:] if k < len(values) else slice(None)
    tokens, values = candidates[best], values[best]
    order = np.argsort(-values, kind="stable")
    tokens, values = tokens[order], values[order]
    with np.errstate(invalid="ignore"):
        total = np.exp(row - values[0]).sum()
        return tokens.tolist(), (np.exp(values - values[0]) / total).tolist()


def _best_blocks(row: Floats, k: int) -> NDArray[np.intp]:
    """Return tokens that contain the k best: those of the k blocks with the largest maxima."""
    num_blocks = len(row) // BLOCK
    if num_blocks <= k:
        return np.arange(len(row))
    maxima = row[: num_blocks * BLOCK].reshape(num_blocks, BLOCK).max(axis=-1)
    best = np.argpartition(maxima, num_blocks - k)[-k:]
    inside = (best[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return np.concatenate([inside, np.arange(num_blocks * BLOCK, len(row))])


def _largest(weights: Floats, noise: Floats) -> int:
    with np.errstate(divide="ignore"):  # the logarithm of zero mass is -inf, and never the largest
        return int((np.log(weights) + noise).argmax())


class _HostOperations:
    """The operations of one row, (V,)."""

    def where(self, condition: Bools, chosen: Floats, other: float) -> Floats:
        return np.where(condition, chosen, np.float32(other))

    def softmax(self, logits: Floats) -> Floats:
        with np.errstate(invalid="ignore"):  # infinite logits give NaN, which a round rejects
            weights: Floats = np.exp(logits - logits.max())
        weights /= weights.sum()
        return weights

    def are_best(self, logits: Floats, k: int) -> Bools:
        last = np.partition(logits, len(logits) - k)[len(logits) - k]
        kept: Bools = logits > last
        tied = np.flatnonzero(logits == last)
        kept[tied[: k - int(kept.sum())]] = True
        return kept

    def are_nucleus(self, probs: Floats, mass: float) -> Bools:
        # All tokens below this have less than 1 - mass together, so the nucleus is above it.
        likely = probs[probs >= 0.5 * (1 - mass) / len(probs)]
        if likely.sum(dtype=np.float64) < mass:  # by rounding, if mass is very near 1
            likely = probs
        ordered = np.sort(likely)[::-1]
        above = np.cumsum(ordered, dtype=np.float64) - ordered  # mass of the more probable tokens
        # `above` is less than mass also for the token that reaches it, so that token stays. No NaN
        # is kept.
        kept: Bools = probs >= ordered[above < np.float32(mass)].min(initial=inf)
        return kept

    def are_among(self, tokens: Sequence[int], vocab_size: int) -> Bools:
        return np.isin(np.arange(vocab_size), tokens)


HOST = _HostOperations()
