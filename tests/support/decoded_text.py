"""The expected state of a decoder, with its checks; `test_decoder_machine` changes it.

The model of the state machine is a list of tokens. `shadow` computes the expected cache, last
hidden state and next logits; it never stages, commits or evicts anything.
"""

import numpy as np
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from tests.support.shadow import Shadow, assert_holds
from tests.support.tiny import make_cache


class Reader:
    """Records the final states that it gets."""

    capture = ()

    def __init__(self):
        self.tokens, self.rows = [], []

    @property
    def num_read(self):
        return len(self.tokens)

    def read(self, tokens, states):
        self.tokens += tokens
        self.rows += list(np.array(states.final))

    def forget(self, length):
        del self.tokens[length:], self.rows[length:]


class DecodedText(RuleBasedStateMachine):
    """A decoder, the text that it should hold, and the staged tree."""

    shadow: Shadow

    def __init__(self):
        super().__init__()
        self.decoder = Decoder(self.shadow.model, make_cache(self.shadow.model, self.shadow.kind))
        self.text = []
        self.paths = None  # tokens from the root to each node of the staged tree
        self.nodes = None  # nodes from the root to each node
        self.chain = []
        self.lower = []
        self.reader = None

    # ---- truth -------------------------------------------------------------------------------

    @invariant()
    def remembers_the_text(self):
        assert self.decoder.history == tuple(self.text)
        assert len(self.decoder) == self.decoder.cache.offset == len(self.text)

    @invariant()
    def readers_were_told_every_token_once(self):
        if self.reader is None:
            return
        assert self.reader.tokens == self.text
        for end, row in enumerate(self.reader.rows, 1):
            expected = self.shadow(self.text[:end]).hidden
            np.testing.assert_allclose(row, expected, atol=self.atol, rtol=1e-3)

    @precondition(lambda self: not (self.paths or self.chain or self.lower))
    @invariant()
    def holds_what_the_text_leaves(self):
        assert self.decoder.cache.num_staged == 0
        assert_holds(self.decoder, self.text, self.shadow)

    def teardown(self):
        assert_holds(self.decoder, self.text, self.shadow)

    # ---- inside ------------------------------------------------------------------------------

    @property
    def atol(self):
        return 0.3 if "int8" in self.shadow.kind else 1e-3

    def assert_says(self, logits, text):
        expected = self.shadow(text).logits
        np.testing.assert_allclose(logits, expected, atol=self.atol, rtol=1e-3)

    def tree_of(self, chain, branches):
        """A tree that begins with a chain, and the tokens and the nodes of all its paths."""
        drawn, parents = list(chain), list(range(-1, len(chain) - 1))
        paths = [chain[: end + 1] for end in range(len(chain))]
        nodes = [list(range(end + 1)) for end in range(len(chain))]
        for share, token in branches:
            parent = int(share * len(drawn))
            if (parent, token) not in zip(parents, drawn, strict=True):
                paths.append([*paths[parent], token])
                nodes.append([*nodes[parent], len(drawn)])
                drawn.append(token)
                parents.append(parent)
        return DraftTree.from_lists(drawn, parents), paths, nodes

    def stage(self, tree_and_paths, *, is_judged):
        tree, paths, nodes = tree_and_paths
        hidden = self.decoder.forward_tree(tree)
        if is_judged:
            for row, path in zip(self.decoder.logits(hidden), paths, strict=True):
                self.assert_says(row, self.text + path)
        self.forget_staged()
        self.paths, self.nodes = paths, nodes

    def forget_staged(self):
        self.paths, self.nodes, self.chain, self.lower = None, None, [], []

    def keep_what_is_staged(self):
        """Computing the last token again, where its state is not stored, drops the staged rows."""
        if not self.decoder.cache.num_staged:
            self.forget_staged()
