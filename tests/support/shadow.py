"""The expected state of a decoder after a text, computed token by token in a full cache.

Nothing is staged, committed, evicted or rolled back here: every prefix has its own rows, and masks
hide the rows that a rotating cache would have evicted.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.decoder.decoder import Decoder
from tests.support.dict_cache import seen
from tests.support.reference import ConcatCache
from tests.support.tiny import make_cache
from tests.support.truth import QuantisedConcatCache

RING = 12, 2  # size and attention sinks of `tiny.make_cache`


@dataclass(frozen=True)
class Said:
    """The results of one token: its row (n_layers, 2, heads, D), hidden state and logits."""

    row: np.ndarray
    hidden: np.ndarray
    logits: np.ndarray
    cache: ConcatCache


class Shadow:
    """A model with a kind of cache, as a function from prefix to results of its last token."""

    def __init__(self, model, kind: str):
        self.model, self.kind = model, kind
        self._said: dict[tuple[int, ...], Said] = {}

    def decoder(self) -> Decoder:
        return Decoder(self.model, make_cache(self.model, self.kind))

    def __call__(self, prefix) -> Said:
        prefix = tuple(prefix)
        if prefix not in self._said:
            self._said[prefix] = self._compute(prefix)
        return self._said[prefix]

    def greedy(self, prompt, count: int) -> list[int]:
        """The reply of plain decoding to a prompt."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(np.argmax(self(tokens).logits)))
        return tokens[len(prompt) :]

    def visible(self, length: int) -> list[int]:
        """Positions that a cache holds after `length` tokens."""
        if "rotating" not in self.kind:
            return list(range(length))
        size, keep = RING
        return [p for p in range(length) if p < keep or p >= length - (size - keep)]

    def _compute(self, prefix) -> Said:
        cache = self._before(prefix).copy()
        position = len(prefix) - 1
        hidden, _ = self.model.hidden_states(
            mx.array([prefix[-1:]]), cache, position, self._masks(position)
        )
        logits = self.model.logits(hidden)
        rows = mx.stack([mx.stack(cache.rows[n])[:, 0, :, -1] for n in range(len(cache.rows))])
        return Said(np.array(rows), np.array(hidden[0, 0]), np.array(logits[0, 0]), cache)

    def _before(self, prefix) -> ConcatCache:
        if len(prefix) > 1:
            return self(prefix[:-1]).cache
        return QuantisedConcatCache(8) if "int8" in self.kind else ConcatCache()

    def _masks(self, position: int) -> dict[int | None, mx.array]:
        age = position - np.arange(position + 1)
        is_held = np.ones(position + 1, bool)
        if "rotating" in self.kind:
            size, keep = RING
            is_held = (age < size - keep) | (np.arange(position + 1) < keep)
        windows = set(self.model.config.layer_windows)
        return {
            window: mx.array((is_held & (age < (window or np.inf)))[None]) for window in windows
        }


def assert_holds(decoder: Decoder, tokens, shadow: Shadow) -> None:
    """History, rows of every layer, last hidden state and next logits are those of `tokens`.

    The check drops staged rows.
    """
    # One quantisation step: a row that is computed with others may round to the next value.
    atol, logits_atol = (0.06, 0.3) if "int8" in shadow.kind else (1e-4, 1e-3)
    assert decoder.history == tuple(tokens)
    assert decoder.cache.offset == len(tokens)
    rows = committed_rows(decoder)
    assert sorted(rows) == shadow.visible(len(tokens))
    for position, row in rows.items():
        expected = shadow(tokens[: position + 1]).row
        np.testing.assert_allclose(row, expected, atol=atol, rtol=1e-4)
    if tokens:
        said = shadow(tokens)
        for _ in range(2):  # stored already or computed; the second time stored in any case
            np.testing.assert_allclose(
                decoder.last_hidden_state(), said.hidden, atol=logits_atol, rtol=1e-3
            )
            np.testing.assert_allclose(
                decoder.next_logits(), said.logits, atol=logits_atol, rtol=1e-3
            )


def committed_rows(decoder: Decoder) -> dict[int, np.ndarray]:
    """{position: (n_layers, 2, heads, D)} of the committed rows, read as attention reads them."""
    cache, config = decoder.cache, decoder.model.config
    decoder.commit([])
    probe = mx.zeros((1, config.num_key_value_heads, 1, config.head_dim))
    layers = range(config.num_hidden_layers)
    read = np.array(mx.stack([seen(cache, layer, probe, probe) for layer in layers]))
    decoder.commit([])
    positions = cache.committed_positions().tolist()
    return {position: read[:, :, 0, :, slot] for slot, position in enumerate(positions)}
