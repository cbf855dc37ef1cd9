"""Medusa: several heads predict the tokens after the next one, all at once, from one state.

The state is the final norm's output at token t. The target's head gives token t+1 from it, which is
emitted and becomes the root. Head i is trained on token t+2+i and predicts depth i+1:

    state at t --+-- target's head --> token t+1    the root
                 +-- head 0 ---------> token t+2    depth 1
                 +-- head 1 ---------> token t+3    depth 2

A head does not depend on the tokens of other heads, so all nodes of a depth have the same children
(Cai et al. 2024, https://arxiv.org/abs/2401.10774).
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.device.ops import exp
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.medusa.network import MedusaHeads
from mlxspec.drafters.medusa.rank_tree import RankTree, best_guesses
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedModelError, VocabularyMismatchError
from mlxspec.params import SamplingParams

__all__ = ["MedusaDrafter", "MedusaHeads"]

_CURSOR_WIDTH = 8


class MedusaDrafter(Drafter):
    """Drafts a tree of the heads' best guesses, a function of the past at every temperature.

    `propose` does not wait for the device: tokens, parents and probabilities are lazy. A pool calls
    `cursor` instead, which waits for the device once.

    Attributes:
        tree: The rule that selects nodes from the guesses of the heads.
        capture: Empty: the only input is the final norm's output.
        num_read: Number of tokens of the target's history that it has read.
    """

    name = "medusa"
    capture: tuple[int, ...] = ()

    def __init__(self, heads: MedusaHeads, target: Decoder, tree: RankTree | None = None) -> None:
        """Make a drafter from heads that were trained for `target`; change their dtype in place.

        Without a tree, it uses the accuracies in the heads' config, if there are any.

        Raises:
            UnsupportedModelError: The heads were made for states of another width.
            VocabularyMismatchError: They have a token that the target does not have.
            ValueError: The tree is deeper than the number of heads.
        """
        _check_fit(heads, target)
        tree = RankTree(heads.config.get("accuracies")) if tree is None else tree
        if tree.depth > len(heads.heads):
            raise ValueError(
                f"the tree has depth {tree.depth}, but there are {len(heads.heads)} heads: "
                "use accuracies that were measured for these"
            )
        self.heads, self.tree = heads, tree
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

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Do nothing: the only input of the heads is the last state."""

    def update(self, round: Round) -> None:
        """Do nothing: `read` already has the hidden state of the last accepted node."""

    def propose(self, root: int, budget: int) -> Draft:
        if self._hidden is None or budget < 1:
            return Draft.empty(root)
        logits, ids = self._logits(self._hidden), self.heads.target_ids
        nodes = self.tree.nodes(logits, ids, budget, self.limits)
        tree = DraftTree(
            mx.concatenate([mx.array([root], mx.int32), nodes.tokens]),
            mx.concatenate([mx.array([-1], mx.int32), nodes.parents]),
            max_depth=len(self.heads.heads),
        )
        return Draft(tree, (self.name,) * (tree.n_nodes - 1), nodes.probs)

    def cursor(self, root: int) -> "MedusaCursor":
        if self._hidden is None:
            return MedusaCursor(())
        logits = self._logits(self._hidden)
        guesses = best_guesses(logits, self.heads.target_ids, _CURSOR_WIDTH)
        probs = exp(guesses.log_probs)
        backend.sync(guesses.tokens, probs)
        rows = zip(backend.values(guesses.tokens), backend.values(probs), strict=True)
        return MedusaCursor([dict(zip(*row, strict=True)) for row in rows])

    def _logits(self, hidden: mx.array) -> mx.array:
        logits = self.heads.logits(hidden, self._tied_head)
        return logits[:, : self._width]  # an output layer may have more padding than the target's


@dataclass(frozen=True)
class MedusaCursor:
    """A depth below the root; every path of this depth has the same next tokens.

    `rows` has the probabilities by token for this depth and each one below.
    """

    rows: Sequence[Mapping[int, float]]

    def next_probs(self) -> Mapping[int, float]:
        return self.rows[0] if self.rows else {}

    def source_of(self, token: int) -> str:
        return MedusaDrafter.name

    def child(self, token: int) -> "MedusaCursor":
        return MedusaCursor(self.rows[1:])


def _check_fit(heads: MedusaHeads, target: Decoder) -> None:
    wanted, width = heads.config["hidden_size"], target.model.config.hidden_size
    if wanted != width:
        raise UnsupportedModelError(
            f"the Medusa heads were made for hidden size {wanted}; that of the target is {width}: "
            "use heads that were trained for this target"
        )
    most = -1 if heads.target_ids is None else max(backend.values(heads.target_ids))
    if most >= target.vocab_size:
        raise VocabularyMismatchError(
            f"the Medusa heads have token {most}; the target's vocabulary ends at "
            f"{target.vocab_size - 1}: use heads that were trained for this target"
        )
