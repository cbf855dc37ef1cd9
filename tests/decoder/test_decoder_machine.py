"""Any calls of a decoder in any order, some of them broken off, leave what the text leaves."""

import mlx.core as mx
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import RowStore
from tests.support.decoded_text import DecodedText, Reader
from tests.support.decoders import read_drafts
from tests.support.layer_faults import Fault
from tests.support.shadow import Shadow
from tests.support.tiny import tiny_model

EXAMPLES = settings(max_examples=16, stateful_step_count=25)
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
LLAMA, QWEN = tiny_model("llama"), tiny_model("qwen2", **WINDOWS)
SHADOWS = {
    "full": Shadow(LLAMA, "full"),
    "rotating": Shadow(LLAMA, "rotating"),
    "int8": Shadow(LLAMA, "int8"),
    "rotating-int8": Shadow(LLAMA, "rotating-int8"),
    "windows": Shadow(QWEN, "full"),
    "windows in a ring": Shadow(QWEN, "rotating"),
}

tokens = st.integers(0, 23)
texts = st.lists(tokens, min_size=1, max_size=6)
# A child of any node before it, whatever the root: (parent as a share, token).
branches = st.lists(st.tuples(st.floats(0, 0.999), tokens), max_size=5)
faults = st.sampled_from([RuntimeError("no memory"), MemoryError(), KeyboardInterrupt()])


class Decoding(DecodedText):
    """Reads, drafts, commits, goes back and breaks off."""

    # ---- text --------------------------------------------------------------------------------

    @rule(text=texts)
    def observe(self, text):
        self.decoder.observe(text)
        self.text += text
        self.forget_staged()

    @rule(share=st.floats(0, 1))
    def roll_back(self, share):
        length = round(share * len(self.text))
        self.decoder.rollback_to(length)
        del self.text[length:]
        self.forget_staged()

    @rule()
    def reset(self):
        self.decoder.reset()
        self.text = []
        self.forget_staged()

    @precondition(lambda self: self.text)
    @rule(drafts=st.lists(tokens, max_size=4))
    def read_drafts_at_once(self, drafts):
        logits = read_drafts(self.decoder, drafts)
        for row in range(len(drafts) + 1):
            self.assert_says(logits[row], self.text + drafts[:row])
        self.text += drafts
        if drafts:
            self.forget_staged()
        else:
            self.keep_what_is_staged()

    @precondition(lambda self: self.text)
    @rule()
    def ask_what_follows(self):
        self.assert_says(self.decoder.next_logits(), self.text)
        self.keep_what_is_staged()

    @precondition(lambda self: self.text)
    @rule()
    def read_all_once_more(self):
        final, _ = self.decoder.hidden_states([])
        self.assert_says(self.decoder.logits(final[-1]), self.text)

    # ---- trees -------------------------------------------------------------------------------

    @rule(root=tokens, branches=branches, is_judged=st.booleans())
    def stage_a_tree(self, root, branches, is_judged):
        self.stage(self.tree_of([root], branches), is_judged=is_judged)

    @precondition(lambda self: self.lower)
    @rule(branches=branches)
    def finish_a_tree_from_lower_rows(self, branches):
        self.stage(self.tree_of(self.lower, branches), is_judged=True)

    @rule(root=tokens, branches=branches)
    def judge_a_tree_and_drop_it(self, root, branches):
        tree, paths, _ = self.tree_of([root], branches)
        logits = self.decoder.tree_logits(tree)
        for row, path in zip(logits, paths, strict=True):
            self.assert_says(row, self.text + path)
        self.forget_staged()

    @rule(share=st.floats(0, 0.999))
    @precondition(lambda self: self.paths)
    def commit_a_branch(self, share):
        node = int(share * len(self.paths))
        self.decoder.commit(self.nodes[node])
        self.text += self.paths[node]
        self.forget_staged()

    @rule()
    def commit_nothing(self):
        self.decoder.commit([])
        self.forget_staged()

    @rule(path=st.sampled_from([[1], [0, 0], [0, 9], [0, -1]]))
    def commit_no_branch(self, path):
        with pytest.raises(ValueError, match=r"is not a branch|no tree is staged"):
            self.decoder.commit(path)

    # ---- chains ------------------------------------------------------------------------------

    @rule(text=texts)
    def stage_a_chain(self, text):
        if not self.chain:
            self.forget_staged()
        hidden = self.decoder.extend_chain(mx.array(text, mx.int32))
        self.chain += text
        self.paths, self.lower = None, []
        self.assert_says(self.decoder.logits(hidden[-1]), self.text + self.chain)

    @precondition(lambda self: self.chain and self.reader is None)
    @rule(share=st.floats(0, 1))
    def commit_a_part_of_a_chain(self, share):
        kept = self.chain[: round(share * len(self.chain))]
        self.decoder.commit_chain(kept)
        self.text += kept
        self.forget_staged()

    @rule(token=tokens)
    def stage_in_the_lower_layer(self, token):
        self.decoder.extend_lower(token, 1)
        self.lower.append(token)
        self.paths, self.chain = None, []

    # ---- what breaks off ---------------------------------------------------------------------

    @rule(
        text=texts,
        error=faults,
        layer=st.integers(0, 1),
        is_after=st.booleans(),
        call=st.sampled_from(["observe", "drafts", "tree", "chain", "lower"]),
    )
    def break_off_in_a_layer(self, text, error, layer, is_after, call):
        decoder, batch = self.decoder, mx.array(text, mx.int32)
        calls = {
            "observe": lambda: decoder.observe(text),
            "drafts": lambda: read_drafts(decoder, text),
            "tree": lambda: decoder.forward_tree(DraftTree.chain(batch)),
            "chain": lambda: decoder.extend_chain(batch),
            "lower": lambda: decoder.extend_lower(text[0], 2),
        }
        if call == "drafts" and not self.text:
            return
        with Fault(error, layer=layer, is_after=is_after), pytest.raises(type(error)):
            calls[call]()
        self.forget_staged()
        assert decoder.cache.num_staged == 0

    @precondition(lambda self: self.text)
    @rule(share=st.floats(0, 1), error=faults)
    def break_off_while_going_back(self, share, error):
        """Where nothing has to be read anew it succeeds."""
        length = round(share * len(self.text))
        try:
            with Fault(error, layer=1, is_after=True):
                self.decoder.rollback_to(length)
        except (RuntimeError, MemoryError, KeyboardInterrupt):
            self.decoder.rollback_to(len(self.text))  # readers may have been told half of it
        else:
            del self.text[length:]
        self.forget_staged()

    @precondition(lambda self: self.paths)
    @rule(
        share=st.floats(0, 0.999), owner=st.sampled_from([RowStore, Cache]), is_after=st.booleans()
    )
    def tear_a_commit_and_mend_it(self, share, owner, is_after):
        path = self.nodes[int(share * len(self.nodes))]
        name = "place" if owner is RowStore else "commit"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, torn(getattr(owner, name), is_after))
            try:
                self.decoder.commit(path)
            except KeyboardInterrupt:
                pass
            else:  # rows that lie where they should need not be placed
                self.text += self.paths[int(share * len(self.paths))]
        self.decoder.rollback_to(len(self.text))
        self.forget_staged()

    # ---- who reads along ---------------------------------------------------------------------

    @rule(is_there=st.booleans())
    def attach(self, is_there):
        if is_there == (self.reader is not None):
            return
        self.reader = Reader() if is_there else None
        self.decoder.attach([self.reader] if is_there else [])
        if is_there:
            self.text = []
            self.forget_staged()


def torn(method, is_after):
    """A method that is interrupted, before or after it did its work."""

    def interrupted(self, *args):
        if is_after:
            method(self, *args)
        raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("name", SHADOWS)
def test_any_calls_leave_what_the_text_leaves(name):
    machine = type("Decoding", (Decoding,), {"shadow": SHADOWS[name]})
    run_state_machine_as_test(machine, settings=EXAMPLES)
