"""Medusa: several heads predict the tokens after the next one, all at once, from one state.

The state is the final norm's output at token t. The target's head gives token t+1 from it, which is
emitted and becomes the root. Head i is trained on token t+2+i and predicts depth i+1:

    state at t --+-- target's head --> token t+1    the root
                 +-- head 0 ---------> token t+2    depth 1
                 +-- head 1 ---------> token t+3    depth 2

A head does not depend on the tokens of other heads, so all nodes of a depth have the same children
(Cai et al. 2024, https://arxiv.org/abs/2401.10774).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import accumulate
from math import log
from typing import Self

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.device.exponential import exp, silu
from mlxspec.device.products import Linear
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.network import Config, HeadNetwork
from mlxspec.drafters.search.beam import NextTokens
from mlxspec.drafters.search.growth import StateCursor
from mlxspec.drafters.search.rank_tree import grow_ranks
from mlxspec.drafts.draft import Draft
from mlxspec.errors import UnsupportedModelError
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields

_CURSOR_WIDTH = 8
_Rows = tuple[Mapping[int, float], ...]
_MAX_WIDTH = 10  # largest number of guesses per head
_LEAST_LOGPROB = -60.0  # its exponential is still above 0 in float32


class MedusaHead(nn.Module):
    """Residual blocks x + SiLU(Wx + b) and, unless it is tied, an output layer `out`."""

    def __init__(self, hidden_size: int, num_blocks: int, num_outputs: int | None, bias: bool):
        super().__init__()
        self.blocks = [Linear(hidden_size, hidden_size, bias) for _ in range(num_blocks)]
        if num_outputs is not None:
            self.out = Linear(hidden_size, num_outputs, bias=False)

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return the input of the output layer, with the shape of `hidden`."""
        for block in self.blocks:
            hidden = hidden + silu(block(hidden))
        return hidden


class MedusaHeads(HeadNetwork):
    """Several heads over one state; the first one predicts the token after the next."""

    ids_name = "token_map"

    def __init__(
        self,
        config: Config,
        num_heads: int,
        num_blocks: int = 1,
        *,
        target_ids: mx.array | None = None,
        num_outputs: int | None = None,
        bias: bool = True,
    ) -> None:
        """Build heads with random weights.

        `config` has `accuracies` if they were measured: per head, the share of correct guesses of
        each rank. `num_outputs` is the width of their own output layers; None for the target's.
        """
        super().__init__(config, target_ids)
        self.heads = [
            MedusaHead(config["hidden_size"], num_blocks, num_outputs, bias)
            for _ in range(num_heads)
        ]

    @classmethod
    def of_shape(
        cls, config: Config, tensors: Mapping[str, mx.array], target_ids: mx.array | None
    ) -> Self:
        num_heads, num_blocks = _count(tensors, "heads."), _count(tensors, "heads.0.blocks.")
        for name, number in (("num_heads", num_heads), ("num_layers", num_blocks)):
            stated = config.get(name, number)
            if stated != number or not num_heads:
                raise UnsupportedModelError(
                    f"its config states {stated} as '{name}', and its tensors are those of "
                    f"{number}: it is incomplete, or its config is wrong"
                )
        out = tensors.get("heads.0.out.weight")
        rows = config.get("vocab_size") if target_ids is None else target_ids.size
        return cls(
            config,
            num_heads,
            num_blocks,
            target_ids=target_ids,
            num_outputs=None if out is None else rows or out.shape[0],
            bias="heads.0.blocks.0.bias" in tensors,
        )

    @classmethod
    def check(cls, fields: Fields, target: TargetConfig) -> None:
        """Refuse accuracies that are not shares, a list a head."""
        rows = fields.get("accuracies")
        if rows is not None and not (isinstance(rows, list) and all(map(_are_shares, rows))):
            raise fields.refusal("accuracies", "a list of shares from 0 to 1 for each head")

    @property
    def is_tied(self) -> bool:
        """Whether the heads share the target's output layer."""
        return "out" not in self.heads[0]

    def logits(self, hidden: mx.array, tied_head: Callable[[mx.array], mx.array]) -> mx.array:
        """Return (H, V') logits, one row per head, from the (1, D) final norm's output.

        `tied_head` is the target's output layer, limited to `target_ids`; tied heads use it.
        """
        states = [head(hidden) for head in self.heads]
        if self.is_tied:
            return tied_head(mx.concatenate(states))  # the large matrix is read once for all
        return mx.concatenate([head.out(x) for head, x in zip(self.heads, states, strict=True)])


class MedusaDrafter(Drafter):
    """Drafts a tree of the heads' best guesses, a function of the past at every temperature.

    `propose` does not wait for the device: tokens, parents and probabilities are lazy. A pool calls
    `cursor` instead, which waits for the device once.
    """

    name = "medusa"
    capture: tuple[int, ...] = ()  # the only input is the final norm's output

    def __init__(self, heads: MedusaHeads, target: Decoder) -> None:
        """Make a drafter from heads that were trained for `target`; change their dtype in place.

        The heads' probabilities distinguish certain positions from uncertain ones; the accuracies
        in the heads' config, if there are any, show how reliable each rank of a head is. Their
        geometric mean is better than either alone.
        """
        shares = heads.config.get("accuracies") or ()
        self._log_shares = [_falling_logs(row) for row in shares[: len(heads.heads)]]
        self.heads = heads
        self.num_read = 0
        self._hidden: mx.array | None = None  # (1, D) state of the last token of the history
        self._width = target.vocab_size
        ids = heads.target_ids if heads.is_tied else None
        self._tied_head = target.logits if ids is None else target.model.head_rows(ids)
        heads.set_dtype(target.model.dtype)
        mx.eval(heads.parameters())

    def fresh_for(self, target: Decoder) -> "MedusaDrafter":
        fresh = copy(self)  # the heads are shared
        fresh.forget(0)
        return fresh

    # ---- the target's states ---------------------------------------------------------------

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        if tokens:
            self._hidden = states.final[-1:]
            self.num_read += len(tokens)

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens; there is no draft until the next `read`."""
        if length < self.num_read or not length:
            self._hidden = None
            self.num_read = length

    # ---- rounds ----------------------------------------------------------------------------

    def propose(self, root: int, budget: int) -> Draft:
        if self._hidden is None or budget < 1:
            return Draft.empty(root)
        width = min(budget, self.limits.branching or budget, _MAX_WIDTH)
        guesses = self._weighed(self._guesses(self._hidden, width))
        depth = self.limits.depth
        guesses = NextTokens(guesses.tokens[:depth], guesses.log_probs[:depth])
        return grow_ranks(root, guesses, budget, self.name)

    def cursor(self, root: int) -> StateCursor:
        """Return the cursor at the root; a state is the guesses at its depth and each below."""
        if self._hidden is None:
            return StateCursor(self, ())
        guesses = self._guesses(self._hidden, _CURSOR_WIDTH)
        probs = exp(guesses.log_probs)
        backend.sync(guesses.tokens, probs)
        rows = zip(backend.values(guesses.tokens), backend.values(probs), strict=True)
        return StateCursor(self, tuple(dict(zip(*row, strict=True)) for row in rows))

    def next_probs(self, state: _Rows) -> Mapping[int, float]:
        return state[0] if state else {}

    def after(self, state: _Rows, token: int) -> _Rows:
        return state[1:]  # every path of a depth has the same next tokens

    def _guesses(self, hidden: mx.array, width: int) -> NextTokens:
        """Return the `width` most probable tokens of each head; log-probabilities are finite."""
        # An output layer may have more padding than the target's.
        logits = self.heads.logits(hidden, self._tied_head)[:, : self._width]
        guesses = NextTokens.of(logits, width, self.heads.target_ids)
        is_usual = guesses.log_probs > _LEAST_LOGPROB  # False for a NaN too
        log_probs = mx.where(is_usual, mx.minimum(guesses.log_probs, 0.0), _LEAST_LOGPROB)
        return NextTokens(guesses.tokens, log_probs)

    def _weighed(self, guesses: NextTokens) -> NextTokens:
        if not self._log_shares:
            return guesses
        depth = len(self._log_shares)
        width = min(guesses.tokens.shape[1], *map(len, self._log_shares))
        measured = mx.array([row[:width] for row in self._log_shares])
        log_probs = (guesses.log_probs[:depth, :width] + measured) / 2
        return NextTokens(guesses.tokens[:depth, :width], log_probs)


def _falling_logs(shares: Sequence[float]) -> list[float]:
    """Return the logarithms of shares, none above the one before: ranks must stay in order."""
    logs = (log(share) if share > 0 else _LEAST_LOGPROB for share in shares)
    return list(accumulate(logs, min))


def _are_shares(row: object) -> bool:
    return isinstance(row, list) and all(
        type(share) in (int, float) and 0 <= share <= 1 for share in row
    )


def _count(tensors: Mapping[str, mx.array], prefix: str) -> int:
    numbers = {name[len(prefix) :].split(".")[0] for name in tensors if name.startswith(prefix)}
    return len(numbers)
