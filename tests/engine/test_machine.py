"""Turns in any order, some of them broken off in the midst of a forward, leave a sound engine.

After every turn the cache of the target, and that of a draft model, holds what its text leaves,
row by row; whatever was told is what the target says, recomputed by `shadow`.
"""

from contextlib import suppress

import mlx.core as mx
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mlxspec.params import GenerationParams
from tests.engine.test_interrupts import DRAFTERS, DRAFTS, SHADOWS, engine_with
from tests.support.layer_faults import Fault
from tests.support.pairwise import each_value
from tests.support.shadow import Shadow, assert_holds

EXAMPLES = settings(max_examples=2, stateful_step_count=7)
tokens = st.integers(0, 23)
new = st.lists(tokens, min_size=1, max_size=4)
lengths = st.integers(1, 8)


class Chat(RuleBasedStateMachine):
    """An engine, and the text so far: what was asked and what was told."""

    drafter: str
    kind: str

    @property
    def shadow(self) -> Shadow:
        return SHADOWS[self.kind]

    @initialize(looks_ahead=st.booleans(), text=new)
    def begin(self, looks_ahead, text):
        self.engine = engine_with(self.drafter, self.kind, looks_ahead=looks_ahead)
        self.text = text

    def ask(self, count, num_events=None, should_stop=lambda: False):
        """Read some events of a reply; note and return the tokens that they tell."""
        params = GenerationParams(max_tokens=count, num_draft_tokens=4)
        events = self.engine.generate(list(self.text), params, should_stop=should_stop)
        prompt, told = list(self.text), []
        try:
            for number, event in enumerate(events):
                told += [token.token for token in getattr(event, "emit", ())]
                if number + 1 == num_events:
                    break
        finally:
            events.close()
            self.text += told
            assert told == self.shadow.greedy(prompt, count)[: len(told)]
        return told

    # ---- turns -------------------------------------------------------------------------------

    @rule(added=new, count=lengths)
    def a_turn(self, added, count):
        self.text += added
        assert len(self.ask(count)) == count

    @rule(share=st.floats(0, 1), added=new, count=lengths)
    def another_text_with_the_same_beginning(self, share, added, count):
        self.text = self.text[: round(share * len(self.text))] + added
        assert len(self.ask(count)) == count

    @rule(added=new, num_events=st.integers(1, 5))
    def a_turn_that_is_left(self, added, num_events):
        self.text += added
        self.ask(8, num_events)

    @rule(added=new, num_questions=st.integers(0, 4))
    def a_turn_that_is_cancelled(self, added, num_questions):
        self.text += added
        left = iter([False] * num_questions)
        self.ask(8, should_stop=lambda: next(left, True))

    @rule(
        added=new,
        error=st.sampled_from([RuntimeError("no memory"), MemoryError(), KeyboardInterrupt()]),
        layer=st.integers(0, 1),
        is_after=st.booleans(),
        passes=st.integers(0, 4),
    )
    def a_turn_that_breaks_off_in_a_layer(self, added, error, layer, is_after, passes):
        """Of the target, or of the drafter, which the reply goes on without."""
        self.text += added
        with (
            suppress(RuntimeError, MemoryError, KeyboardInterrupt),
            Fault(error, layer=layer, is_after=is_after, passes=passes),
        ):
            self.ask(8)

    @rule(added=new, num_waits=st.integers(0, 3))
    def a_turn_that_runs_out_of_memory(self, added, num_waits):
        self.text += added
        left = iter([False] * num_waits)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mx, "eval", refusing(mx.eval, left))
            with pytest.raises(MemoryError):
                self.ask(8)

    @rule()
    def forget_all(self):
        self.engine.target.reset()

    # ---- truth -------------------------------------------------------------------------------

    @invariant()
    def caches_hold_their_text(self):
        if not hasattr(self, "engine"):
            return
        target, drafter = self.engine.target, self.engine.drafter
        # A round is committed before its first event leaves, and its tokens come with the last.
        assert list(target.history)[: len(self.text)] == self.text[: len(target)]
        assert target.cache.num_staged == 0
        assert_holds(target, target.history, self.shadow)
        decoder = getattr(drafter, "decoder", target)
        if decoder is not target:
            assert list(decoder.history)[: len(self.text)] == self.text[: len(decoder)]
            assert_holds(decoder, decoder.history, DRAFTS[self.kind])


def refusing(wait, left):
    def refuse(*arrays):
        if next(left, True):
            raise MemoryError
        wait(*arrays)

    return refuse


@each_value(kind=SHADOWS, drafter=DRAFTERS)
def test_any_turns_leave_what_their_text_leaves(drafter, kind):
    machine = type("Chat", (Chat,), {"drafter": drafter, "kind": kind})
    run_state_machine_as_test(machine, settings=EXAMPLES)
