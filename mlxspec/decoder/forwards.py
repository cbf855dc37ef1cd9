"""Forwards of a model over its cache: a chain, a tree, the last row again, the lower layers only.

A forward stages rows and returns lazy hidden states; it never commits. A drafter that uses the
target's lower layers leaves its rows staged there, and the forward of its tree continues from the
next layer. So no layer computes a token twice (LayerSkip, Elhoushi et al. 2024,
https://arxiv.org/abs/2404.16710).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks, chain_masks, last_row_masks, tree_masks
from mlxspec.models import TargetModel

T = TypeVar("T")


@dataclass(frozen=True)
class _Lower:
    """A chain that was computed in the lower layers only."""

    layer: int  # the next layer of its rows
    capture: tuple[int, ...]  # the captured layers at its start, including those from `layer` on
    tokens: tuple[int, ...] = ()
    # Per row, the (1, D) state entering `layer`, then the captured states below it.
    states: tuple[tuple[mx.array, ...], ...] = ()

    @property
    def below(self) -> tuple[int, ...]:
        """The captured layers below `layer`."""
        return tuple(layer for layer in self.capture if layer < self.layer)


class Forwards:
    """Runs one model over one cache; every forward leaves its rows staged."""

    def __init__(self, model: TargetModel, cache: Cache) -> None:
        self.model = model
        self.cache = cache
        self.capture: tuple[int, ...] = ()  # layers whose entering states are captured, ascending
        # The kind of staged rows: a tree with its states, "chain", or None for any other.
        self.staged: tuple[DraftTree, HiddenStates] | Literal["chain"] | None = None
        self._windows = tuple(dict.fromkeys(model.config.layer_windows))
        self._lower: _Lower | None = None

    @property
    def are_exact(self) -> bool:
        """Whether every row is computed to the same bits whatever stands beside it."""
        return self.cache.steady is not None

    def text(self, tokens: Sequence[int]) -> HiddenStates:
        """Forget all staged rows, then stage a chain of tokens."""
        self.drop()
        self.cache.states.expect_text(len(tokens))
        return self._line(mx.array(list(tokens), mx.int32))

    def chain(self, tokens: mx.array) -> HiddenStates:
        """Stage a chain of (L,) int32 tokens after those staged by this method."""
        if self.staged != "chain":
            self.drop()
        first = self.cache.states.num_staged
        self.cache.states.expect_rows([range(first - 1, first - 1 + tokens.shape[0])])
        states = self._line(tokens)
        self.staged = "chain"
        return states

    def tree(self, tree: DraftTree) -> HiddenStates:
        """Stage a tree; the lower layers of its first rows may already be computed."""
        lower, self._lower = self._lower, None
        if lower is not None and not self.are_exact and self._continues(lower, tree):
            states = self._guarded(lambda: self._finish(lower, tree))
        else:
            self.drop()
            if len(self.cache.states):  # only recurrent states need the parents on the host
                self.cache.states.expect_rows([tree.parent_list()])
            states = self._whole(tree)
        self.staged = (tree, states)
        return states

    def lower(self, token: int, layer: int) -> mx.array:
        """Stage a token in the layers below `layer`; return the (1, D) lazy state entering it."""
        before = self._lower  # `drop` clears it whenever other rows are staged
        if before is None or (before.layer, before.capture) != (layer, self.capture):
            self.drop()
            before = _Lower(layer, self.capture)
        return self._guarded(lambda: self._extend(before, token))

    def last_row(self, token: int) -> mx.array:
        """Compute the last committed token again; return its (1, D) final state."""
        self.drop()
        masks = last_row_masks(self.cache, self._windows)
        states = self._run(mx.array([token], mx.int32), self.cache.offset - 1, masks)
        mx.eval(states.final)
        self.drop()
        return states.final

    def again(self, tokens: Sequence[int], layers: Sequence[int]) -> HiddenStates:
        """Return the states of a whole text, computed in a temporary cache."""
        scratch = self.cache.empty_like()
        scratch.states.expect_text(len(tokens))
        masks = chain_masks(scratch, len(tokens), self._windows)
        batch = mx.array(list(tokens), mx.int32)[None]
        final, captured = self.model.hidden_states(batch, scratch, 0, masks, capture=layers)
        states = (state[0] for state in captured)
        return HiddenStates(final[0], dict(zip(layers, states, strict=True)))

    def commit(self, rows: Sequence[int]) -> None:
        """Commit some of the staged rows and forget the others."""
        self.cache.commit(rows)
        self._settle()

    def drop(self) -> None:
        """Forget all staged rows."""
        self.cache.rollback()
        self._settle()

    def _settle(self) -> None:
        self.staged, self._lower = None, None

    def _line(self, tokens: mx.array) -> HiddenStates:
        masks = chain_masks(self.cache, tokens.shape[0], self._windows)
        return self._run(tokens, self.cache.offset + self.cache.num_staged, masks)

    def _run(self, tokens: mx.array, positions: int | mx.array, masks: Masks) -> HiddenStates:
        return self._guarded(
            lambda: self._states(
                *self.model.hidden_states(
                    tokens[None], self.cache, positions, masks, capture=self.capture
                )
            )
        )

    def _states(self, final: mx.array, captured: Sequence[mx.array]) -> HiddenStates:
        entering = zip(self.capture, (state[0] for state in captured), strict=True)
        return HiddenStates(final[0], dict(entering))

    def _whole(self, tree: DraftTree) -> HiddenStates:
        # Contiguous rows, as those of a text, cost less: one position suffices.
        if self.are_exact or self.model.draft_support != "tree" or tree.n_nodes == 1:
            return self._line(tree.tokens)
        positions = self.cache.offset + tree.depths
        return self._run(tree.tokens, positions, self._tree_masks(tree, 0))

    def _extend(self, before: _Lower, token: int) -> mx.array:
        masks = chain_masks(self.cache, 1, self._windows)
        position = self.cache.offset + self.cache.num_staged
        states = self._below(before, mx.array([token], mx.int32), position, masks)
        done = (*before.tokens, token), (*before.states, states)
        self._lower = _Lower(before.layer, before.capture, *done)
        return states[0]

    def _below(
        self, lower: _Lower, tokens: mx.array, positions: int | mx.array, masks: Masks
    ) -> tuple[mx.array, ...]:
        """Return (L, D) states of (L,) tokens: those entering `lower.layer`, then captured ones."""
        x, captured = self.model.run_layers(
            self.model.embed(tokens[None]),
            self.cache,
            positions,
            masks,
            range(lower.layer),
            capture=lower.below,
        )
        return x[0], *(state[0] for state in captured)

    def _continues(self, lower: _Lower, tree: DraftTree) -> bool:
        """Return whether a tree starts with the chain that the lower layers have computed."""
        if lower.capture != self.capture:
            return False
        tokens, parents = tree.lists()
        num_done = len(lower.tokens)
        chain = list(range(-1, num_done - 1))
        return tokens[:num_done] == list(lower.tokens) and parents[:num_done] == chain

    def _finish(self, lower: _Lower, tree: DraftTree) -> HiddenStates:
        """Run the new nodes through the lower layers, then all nodes through the upper layers."""
        num_done, states = len(lower.states), list(lower.states)
        positions = self.cache.offset + tree.depths
        rest = tree.tokens[num_done:]
        if rest.shape[0]:
            masks = self._tree_masks(tree, num_done)
            states.append(self._below(lower, rest, positions[num_done:], masks))
        x, *below = (mx.concatenate(list(rows)) for rows in zip(*states, strict=True))
        x, above = self.model.run_layers(
            x[None],
            self.cache,
            positions,
            self._tree_masks(tree, 0),
            range(lower.layer, self.model.config.num_hidden_layers),
            capture=self.capture[len(below) :],
        )
        return self._states(self.model.norm(x), [*(state[None] for state in below), *above])

    def _tree_masks(self, tree: DraftTree, first: int) -> Masks:
        """Return the masks of the nodes from `first` on, while the earlier ones are staged."""
        positions = self.cache.offset + tree.depths
        return tree_masks(self.cache, positions, tree.ancestors[first:], self._windows)

    def _guarded(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except BaseException:  # an interrupt too must not leave rows in only some layers
            self.drop()
            raise
