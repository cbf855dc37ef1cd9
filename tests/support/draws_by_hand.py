"""Sampling in NumPy: first the block of the vocabulary, then the token, each with its own noise."""

import numpy as np

BLOCK = 128


def draw_by_hand(probs, noise):
    """Return the token that the noise selects from (V,) probabilities, and the margin.

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
