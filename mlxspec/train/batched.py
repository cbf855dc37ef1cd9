"""Many replies at once: continuous batching over one model.

Each slot of the batch holds one text. A new prompt is read alone, from where it parts from what
its slot holds, exactly as plain decoding reads it; then all slots advance together, one token a
step. A slot is free again as soon as its reply is over, so short replies do not wait for long ones
(Orca, Yu et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu).

    slot 0   prompt . reply ......      |
    slot 1   prompt ......... reply .   |  one step adds a token to each
    slot 2   prompt . reply .           |

What asks for replies is a generator: it yields a request and is sent the reply, as often as it
likes. Its draws come from its own random stream, so they do not depend on its neighbours.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.device.backend import sync
from mlxspec.device.ops import exp
from mlxspec.kv.storage import GROWTH
from mlxspec.models import Model
from mlxspec.models.layers import Attention, DecoderLayer
from mlxspec.prompt import common_length

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A reply that is wanted.

    Attributes:
        prompt: What stands before it, at least one token.
        max_tokens: Tokens at most, 1 or more.
        temperature: 0 takes the most probable token, the lowest id where several are.
        rng: Where the draws come from.
        is_over: Told the reply after each token; says whether that was the last.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    rng: np.random.Generator
    is_over: Callable[[Sequence[int]], bool]


Task = Generator[Request, list[int], T]
"""Yields requests, is sent the replies, returns what it made of them."""


class BatchedDecoder:
    """One model over many slots, each with a text of its own length.

    Attributes:
        tokens: Per slot, the tokens whose keys and values it holds.
    """

    def __init__(self, model: Model, num_slots: int) -> None:
        """Make `num_slots` empty slots."""
        self.tokens: list[list[int]] = [[] for _ in range(num_slots)]
        self._model = model
        self._keys: list[mx.array] = []  # per layer (num_slots, Hkv, capacity, D)
        self._values: list[mx.array] = []

    def read(self, slot: int, prompt: Sequence[int]) -> NDArray[np.float32]:
        """Put a prompt into a slot; what it shares with the text held there is not read again.

        Returns:
            (V,) logits of the token after it.
        """
        start = min(common_length(self.tokens[slot], prompt), len(prompt) - 1)
        self._reserve(len(prompt))
        rest = mx.array([list(prompt[start:])], mx.int32)
        masks = {w: _chain_mask(start, len(prompt), w) for w in self._model.config.layer_windows}
        view = _SlotView(self._keys, self._values, slot, start)
        hidden, _ = self._model.hidden_states(rest, view, start, masks)
        logits = self._model.logits(hidden[0, -1]).astype(mx.float32)
        sync(logits, *self._keys, *self._values)
        self.tokens[slot] = list(prompt)
        return np.array(logits)

    def step(self, tokens: dict[int, int]) -> NDArray[np.float32]:
        """Add one token to some slots.

        Args:
            tokens: Slot to token.

        Returns:
            (num_slots, V) logits of the tokens that follow; without meaning in other slots.
        """
        lengths = [len(held) for held in self.tokens]
        self._reserve(max(lengths) + 1)
        ids = mx.array([tokens.get(slot, 0) for slot in range(len(self.tokens))], mx.int32)
        logits = self._forward(ids, mx.array(lengths, mx.int32), max(lengths) + 1)
        sync(logits, *self._keys, *self._values)
        for slot, token in tokens.items():
            self.tokens[slot].append(token)
        return np.array(logits)

    def _forward(self, tokens: mx.array, positions: mx.array, width: int) -> mx.array:
        """Return (B, V) float32 logits after (B,) tokens at (B,) positions, one per slot."""
        ages = positions[:, None] - mx.arange(width)  # (B, width)
        masks = {
            window: ((ages >= 0) if window is None else (ages >= 0) & (ages < window))
            for window in self._model.config.layer_windows
        }
        x = self._model.embed(tokens)  # (B, D)
        for layer in self._model.layers:
            x = x + self._attention(layer, x, positions, masks[layer.window])
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self._model.logits(self._model.norm(x)).astype(mx.float32)

    def _attention(
        self, layer: DecoderLayer, x: mx.array, positions: mx.array, mask: mx.array
    ) -> mx.array:
        attention, x = layer.self_attn, layer.input_layernorm(x)
        queries = _rotated(attention, attention.q_proj(x), attention.n_heads, positions)
        keys = _rotated(attention, attention.k_proj(x), attention.n_kv_heads, positions)
        values = attention.v_proj(x).reshape(*keys.shape)
        where = mx.broadcast_to(positions[:, None, None, None], keys.shape)
        index, width = attention.layer, mask.shape[1]
        for buffers, rows in ((self._keys, keys), (self._values, values)):
            buffers[index] = mx.put_along_axis(buffers[index], where, rows, axis=2)
        seen = self._keys[index][:, :, :width], self._values[index][:, :, :width]
        return attention.o_proj(_attend(queries * attention.scale, *seen, mask))

    def _reserve(self, capacity: int) -> None:
        held = self._keys[0].shape[2] if self._keys else 0
        if capacity <= held:
            return
        config = self._model.config
        extra = -(-(capacity - held) // GROWTH) * GROWTH
        shape = (len(self.tokens), config.num_key_value_heads, extra, config.head_dim)
        dtype = row_dtype(self._model)
        for buffers in (self._keys, self._values):
            # One array for each layer: they are written in place.
            blank = [mx.zeros(shape, dtype) for _ in range(config.num_hidden_layers)]
            pairs = zip(buffers, blank, strict=True) if held else []
            buffers[:] = [mx.concatenate(list(pair), axis=2) for pair in pairs] or blank


class _SlotView:
    """The cache of a model that reads one slot; rows from `start` on are written anew."""

    def __init__(self, keys: list[mx.array], values: list[mx.array], slot: int, start: int) -> None:
        self._keys, self._values = keys, values
        self._slot, self._start = slot, start

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        slot, end = slice(self._slot, self._slot + 1), self._start + keys.shape[2]
        self._keys[layer][slot, :, self._start : end] = keys
        self._values[layer][slot, :, self._start : end] = values
        return self._keys[layer][slot, :, :end], self._values[layer][slot, :, :end]


def row_dtype(model: Model) -> mx.Dtype:
    """Return the type of a model's keys and values."""
    return model.embed(mx.array([0])).dtype


def _rotated(attention: Attention, x: mx.array, heads: int, positions: mx.array) -> mx.array:
    """Return (B, heads, 1, D) rows, each rotated by the position of its own slot."""
    rows = x.reshape(1, x.shape[0], heads, -1).swapaxes(1, 2)  # (1, heads, B, D)
    return attention.rope(rows, rows, positions)[0].transpose(2, 1, 0, 3)


def _attend(queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array) -> mx.array:
    """Return (B, H * D) attention of one scaled query per slot, where (B, S) says what it sees."""
    B, H, _, D = queries.shape
    grouped = queries.reshape(B, keys.shape[1], -1, D)  # heads that share keys share a product
    scores = (grouped @ keys.swapaxes(-1, -2)).astype(mx.float32)
    scores = mx.where(mask[:, None, None], scores, -mx.inf)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(values.dtype)
    return (weights @ values).reshape(B, H * D)


def _chain_mask(start: int, end: int, window: int | None) -> mx.array | str:
    if window is None:
        return "causal"
    ages = mx.arange(start, end)[:, None] - mx.arange(end)
    return (ages >= 0) & (ages < window)


# ---- tasks ---------------------------------------------------------------------------------


@dataclass
class _Job(Generic[T]):
    """A task, the request it waits for, and the reply so far.

    Attributes:
        is_fresh: Whether the prompt of the request has still to be read.
        result: What the task returned, in a tuple of one; None before that.
    """

    index: int
    task: Task[T]
    request: Request = field(init=False)
    reply: list[int] = field(default_factory=list)
    is_fresh: bool = False
    result: tuple[T] | None = None

    def __post_init__(self) -> None:
        self._advance(lambda: next(self.task))

    def take(self, logits: NDArray[np.float32]) -> None:
        """Draw the next token from (V,) logits; a reply that is over goes to the task."""
        self.is_fresh = False
        self.reply.append(draw_token(logits, self.request.temperature, self.request.rng))
        is_full = len(self.reply) >= self.request.max_tokens
        if self.request.is_over(self.reply) or is_full:
            reply, self.reply = self.reply, []
            self._advance(lambda: self.task.send(reply))

    def _advance(self, resume: Callable[[], Request]) -> None:
        try:
            self.request = resume()
            self.is_fresh = True
        except StopIteration as stop:
            self.result = (stop.value,)


def run_tasks(model: Model, tasks: Iterable[Task[T]], num_slots: int) -> Iterator[tuple[int, T]]:
    """Run tasks side by side, as many at a time as there are slots.

    Yields:
        Index of a task that is done and what it returned, in the order in which they end.
    """
    decoder = BatchedDecoder(model, num_slots)
    waiting = iter(enumerate(tasks))
    jobs: dict[int, _Job[T]] = {}
    while True:
        free = (slot for slot in range(num_slots) if slot not in jobs)
        jobs.update({slot: _Job(*item) for slot, item in zip(free, waiting, strict=False)})
        for slot, job in jobs.items():
            while job.is_fresh:
                job.take(decoder.read(slot, job.request.prompt))
        done = {slot: job for slot, job in jobs.items() if job.result is not None}
        for slot, job in done.items():
            del jobs[slot]
            assert job.result is not None
            yield job.index, job.result[0]
        if not jobs and not done:
            return
        if jobs and not done:
            logits = decoder.step({slot: job.reply[-1] for slot, job in jobs.items()})
            for slot, job in jobs.items():
                job.take(logits[slot])


def draw_token(logits: NDArray[np.float32], temperature: float, rng: np.random.Generator) -> int:
    """Return a draw from the softmax of (V,) logits, or the most probable token."""
    if temperature == 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / temperature)
    ends = np.cumsum(weights, dtype=np.float64)  # in float32 rare tokens would drown
    return int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))
