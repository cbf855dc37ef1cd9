"""The fold of events into what the screen shows."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.difference import Difference, Proof
from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation import fold as fold_module
from mlxspec_app.conversation.events import (
    ChatCleared,
    ChatCut,
    ChatOpened,
    ContextFull,
    LoadProgress,
    ModelChoice,
    ProofFinished,
    ProofProgress,
    ReplyDiscarded,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import apply, fold, note_order
from mlxspec_app.conversation.messages import Message, Reply, Span, Turn, turns_of
from mlxspec_app.conversation.orders import Prove
from tests.traces import make_fake

STARTED = GenerationStarted("target", "drafter", seed=7, context_length=100)
DRAFT = DraftProposed(1, 0.1, 4, (DraftNode(1, 0, 5, " a", 0.5, "x"),), 1.5)


def plain(text, r=1):
    return PlainDecoded(r, 0.2, (EmittedToken(1, text, "plain"),), 5.0, 10)


def verified(*tokens, r=1, path=(1,)):
    return DraftVerified(r, 0.2, path, tuple(tokens), 20.0, 1, 12)


ANY_EVENT = st.sampled_from(
    [
        SessionOpening("t", "d"),
        LoadProgress(1, 2),
        SessionReady(),
        SessionFailed("no model"),
        SessionNotice("note"),
        ReplyDiscarded(),
        ChatCleared(),
        ChatOpened((Message("user", [Span("hi")]), Reply(reason="stop"))),
        ChatCut(0),
        ChatCut(1),
        ContextFull(),
        TurnStarted("user", "hi"),
        TurnStarted("system", "be brief"),
        STARTED,
        PrefillProgress(0.1, 1, 2),
        DRAFT,
        verified(EmittedToken(5, " a", "accepted")),
        verified(r=9, path=(4, 5)),
        plain("x"),
        GenerationFinished(1.0, "stop"),
        GenerationFinished(1.0, "cancelled", "tail", {"peak_memory_gb": "much"}),
        GenerationFailed(1.0, "broken"),
    ]
)


def recorded_text(events):
    emitted = [t.text for e in events for t in getattr(e, "emit", ())]
    tails = [e.text for e in events if isinstance(e, GenerationFinished)]
    return "".join([*emitted, *tails])


@pytest.mark.parametrize("name", make_fake.TRACES)
def test_replies_hold_exactly_what_was_emitted(name):
    events = make_fake.TRACES[name]()
    replies = [m for m in fold(events).messages if isinstance(m, Reply)]
    assert "".join(reply.text for reply in replies) == recorded_text(events)


def test_a_chat_is_turns_and_replies_in_order():
    state = fold([SessionReady(), *make_fake.chat()])
    assert [message.role for message in state.messages] == ["user", "assistant"] * 2
    assert state.messages[2].text == "Write a function that merges two sorted lists."
    assert (state.target, state.context_length) == ("SmolLM2-135M-Instruct", 8192)


def test_figures_are_those_of_the_library():
    events = make_fake.tree()
    stats = GenerationStats()
    for event in events:
        stats.add(event)
    assert fold(events).reply.stats == stats


def test_every_span_knows_who_wrote_it_and_when():
    emit = (EmittedToken(5, " a", "accepted", 0.9, 0.5), EmittedToken(6, "", "corrected"))
    reply = fold([STARTED, DRAFT, verified(*emit), plain("b", r=2)]).reply
    assert [(s.text, s.kind, s.round) for s in reply.spans] == [
        (" a", "accepted", 1),
        ("b", "plain", 2),
    ]
    assert (reply.spans[0].target_prob, reply.spans[0].draft_prob) == (0.9, 0.5)


def test_text_held_back_to_the_end_belongs_to_the_last_token():
    emit = (EmittedToken(5, "a", "accepted"), EmittedToken(6, "", "bonus"))
    end = GenerationFinished(1.0, "stop", "tail")
    spans = fold([STARTED, DRAFT, verified(*emit), end]).reply.spans
    assert [(span.text, span.kind) for span in spans] == [("a", "accepted"), ("tail", "bonus")]


def test_a_round_pairs_a_verdict_with_its_own_draft():
    state = fold([STARTED, DRAFT, verified(), plain("b", r=2)])
    assert [round_.draft for round_ in state.reply.rounds] == [DRAFT, None]


def test_a_verdict_of_another_round_gets_no_draft():
    state = fold([STARTED, DRAFT, verified(r=2)])
    assert state.last_round.draft is None


def test_phases_follow_the_session():
    state = fold([SessionOpening("t", "d")])
    phases = [state.phase]
    for event in (
        SessionReady(),
        TurnStarted("user", "hi"),
        STARTED,
        GenerationFinished(1, "stop"),
    ):
        apply(state, event)
        phases.append(state.phase)
    assert phases == ["loading", "ready", "busy", "busy", "ready"]


def test_a_system_prompt_does_not_wait_for_a_reply():
    assert fold([SessionReady(), TurnStarted("system", "be brief")]).phase == "ready"


def test_a_failed_load_says_why():
    state = fold([SessionOpening(), LoadProgress(1, 2), SessionFailed("no such model")])
    assert (state.phase, state.error, state.loading) == ("failed", "no such model", None)


def test_a_failure_keeps_what_was_said():
    state = fold(
        [TurnStarted("user", "hi"), STARTED, plain("half"), GenerationFailed(1.0, "broke")]
    )
    assert (state.reply.text, state.reply.error, state.phase) == ("half", "broke", "ready")
    assert state.reply.is_finished


def test_a_failure_before_the_first_token_is_a_reply_of_its_own():
    state = fold([TurnStarted("user", "hi"), GenerationFailed(0.0, "too long")])
    assert state.reply.error == "too long"


@pytest.mark.parametrize("repeats_turn", [True, False])
def test_regenerating_replaces_the_reply_and_keeps_the_question(repeats_turn):
    turn = TurnStarted("user", "hi")
    events = [turn, STARTED, plain("old"), GenerationFinished(1, "stop"), ReplyDiscarded()]
    events += [turn] if repeats_turn else []
    state = fold([*events, STARTED, plain("new")])
    assert [message.text for message in state.messages] == ["hi", "new"]


def test_the_next_turn_after_regenerating_is_a_new_one():
    turn = TurnStarted("user", "hi")
    reply = [STARTED, plain("x"), GenerationFinished(1, "stop")]
    state = fold([turn, *reply, ReplyDiscarded(), turn, *reply, turn])
    assert [message.role for message in state.messages] == ["user", "assistant", "user"]


def test_two_replies_without_a_turn_between_them_stay_apart():
    state = fold([STARTED, plain("one"), STARTED, plain("two")])
    assert [message.text for message in state.messages] == ["one", "two"]


def test_a_new_chat_is_empty():
    state = fold([*make_fake.chat(), ChatCleared()])
    assert (state.messages, state.context, state.last_round) == ([], 0, None)


def test_an_opened_chat_shows_the_context_that_its_messages_take():
    said, restored = Message("user", [Span("x")]), Reply(reason="stop")
    restored.stats = GenerationStats(prompt_tokens=30, generated_tokens=12)
    state = fold([STARTED, plain("a"), GenerationFinished(1.0, "stop")])
    traced = state.reply
    assert fold([ChatOpened((said, restored))], state).context == 42  # a reply without its trace
    assert fold([ChatOpened((said, restored, said, traced))], state).context == 10
    assert fold([ChatOpened((said, restored, said))], state).context == 42
    assert fold([ChatOpened((said,))], state).context == 0


def test_what_an_edit_cuts_off_is_no_longer_in_the_context():
    said, restored = Message("user", [Span("x")]), Reply(reason="stop")
    restored.stats = GenerationStats(prompt_tokens=30, generated_tokens=12)
    state = fold([ChatOpened((said, restored)), TurnStarted("user", "y"), STARTED, plain("a")])
    assert state.context == 10
    assert fold([ChatCut(1)], state).context == 42


def test_another_drafter_leaves_context_and_plain_line_as_they_are():
    cost = CostMeasured(1.0, 10, (1,), (20.0,))
    begun = SessionOpening("t", "pool", ModelChoice("t", "pool", 64))
    state = fold([begun, SessionReady(), STARTED, plain("a"), cost])
    fold([SessionOpening("t", "none", ModelChoice("t", "none", 64)), SessionReady()], state)
    assert (state.context, state.baseline.cost) == (10, cost)
    assert state.baseline.costs.at(10).tps == 50.0
    fold([SessionOpening("t", "none", ModelChoice("t", "none", 32))], state)
    assert state.baseline.cost is None  # another cache


def test_the_context_is_what_the_cache_holds():
    state = fold([STARTED, PrefillProgress(0.1, 8, 16)])
    assert state.context == 8
    apply(state, plain("x"))
    assert state.context == 10


@pytest.mark.parametrize(
    ("stated", "shown"), [(0.6, 0.6), (2, 2.0), ("much", None), (-1, None), (10**400, None)]
)
def test_memory_is_shown_where_it_can_be_believed(stated, shown):
    end = GenerationFinished(1.0, "stop", stats={"peak_memory_gb": stated})
    assert fold([STARTED, plain("x"), end]).reply.peak_memory == shown


@settings(max_examples=40)
@given(st.lists(ANY_EVENT, max_size=30))
def test_no_order_of_events_breaks_it(events):
    state = fold(events)
    assert state.phase in ("loading", "ready", "busy", "failed")
    assert len({message.number for message in state.messages}) == len(state.messages)


@settings(max_examples=40)
@given(st.lists(ANY_EVENT, max_size=30), st.integers(0, 30))
def test_folding_in_two_steps_is_folding_once(events, cut):
    once, twice = fold(events), fold(events[cut:], fold(events[:cut]))
    assert [m.text for m in twice.messages] == [m.text for m in once.messages]
    assert (twice.phase, twice.context, twice.notices) == (once.phase, once.context, once.notices)


def test_accepted_tokens_know_who_drafted_them():
    nodes = (
        DraftNode(1, 0, 5, " a", 0.5, "table"),
        DraftNode(2, 0, 6, " b", 0.4, "eagle3"),
        DraftNode(3, 2, 7, " c", 0.4, "suffix"),
    )
    emit = (
        EmittedToken(6, " b", "accepted", 0.6, 0.4),
        EmittedToken(7, " c", "accepted", 0.6, 0.4),
        EmittedToken(8, " d", "bonus", 0.6),
    )
    verdict = DraftVerified(1, 0.2, (2, 3), emit, 5.0, 1, 10)
    (reply,) = fold([STARTED, DraftProposed(1, 0.1, 4, nodes, 1.5), verdict]).messages
    assert [span.source for span in reply.spans] == ["eagle3", "suffix", ""]


@pytest.mark.parametrize(
    ("proof", "is_proven"),
    [
        (Proof(9, 9), True),
        (Proof(9, 4, Difference(4, 1, 2, 0.1, 0.0, 1.0, 1.1), "a", "b"), False),
        (Proof(9, 4), None),
    ],
)
def test_a_reply_keeps_what_came_of_its_proof(proof, is_proven):
    state = fold([STARTED, plain("a"), GenerationFinished(1.0, "stop"), ProofProgress(1, 9)])
    assert (state.phase, state.reply.proof) == (
        "busy",
        "decoding plainly: 1 of 9 tokens are the same",
    )
    fold([ProofFinished(proof)], state)
    assert (state.phase, state.reply.proof) == ("ready", proof.describe())
    assert state.reply.is_proven is is_proven


def test_a_proof_that_could_not_be_is_a_notice():
    state = fold([STARTED, plain("a"), ProofFinished(None, "one draw of many")])
    assert state.notices == ["one draw of many"]
    assert state.reply.proof == ""


def test_a_notice_stands_until_something_is_said():
    state = fold([SessionNotice("measuring")])
    assert state.notices == ["measuring"]
    assert fold([TurnStarted("user", "hello")], state).notices == []


def test_an_earlier_chat_takes_the_place_of_the_one_on_the_screen():
    state = fold([TurnStarted("user", "now"), SessionNotice("note")])
    earlier = (Message("user", [Span("then")]), Reply(spans=[Span("yes")], reason="stop"))
    apply(state, ChatOpened(earlier, "be brief", 4, 7))
    assert state.messages[0].text == "be brief"
    assert state.messages[1:] == list(earlier)
    assert (state.phase, state.system, state.notices) == ("ready", "be brief", [])


@pytest.mark.parametrize(
    ("num_turns", "left"), [(0, []), (1, ["one", ""]), (2, ["one", "", "two"])]
)
def test_a_cut_keeps_the_first_turns_and_their_replies(num_turns, left):
    said = [TurnStarted("user", "one"), STARTED, GenerationFinished(1.0, "stop")]
    state = fold([*said, TurnStarted("user", "two"), ChatCut(num_turns)])
    assert [message.text for message in state.messages] == left


def test_turns_pair_what_was_said_with_what_was_answered():
    messages = fold(
        [
            TurnStarted("system", "be brief"),
            TurnStarted("user", "one"),
            STARTED,
            plain("yes"),
            GenerationFinished(1.0, "stop"),
            TurnStarted("user", "two"),
            GenerationFailed(0.0, "too long"),
        ]
    ).messages
    assert turns_of(messages) == [Turn("one", "yes", (1,)), Turn("two", None)]


@pytest.mark.parametrize(
    ("events", "phase"), [([SessionReady()], "busy"), ([SessionOpening()], "loading")]
)
def test_an_order_keeps_the_session_busy_unless_it_loads(events, phase):
    state = fold(events)
    note_order(state, Prove())
    assert state.phase == phase
    assert fold([SessionReady()], state).phase == "ready"


# ---- nobody else writes --------------------------------------------------------------------

APP = Path(fold_module.__file__).parents[1]
CHANGES_A_LIST = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"}


def written_in(source):
    """What a module writes into a record that it calls a state, as source text."""
    for node in ast.walk(ast.parse(source)):
        targets = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr in CHANGES_A_LIST else []
        for target in (part for whole in targets for part in ast.walk(whole)):
            if not isinstance(target, ast.Attribute):
                continue
            if re.search(r"(^|[._])state$", ast.unparse(target.value)):
                yield ast.unparse(target)


def test_the_fold_writes_the_state_and_a_screen_its_queue_alone():
    sources = {path.name: path.read_text() for path in APP.rglob("*.py")}
    writers = {name: list(written_in(source)) for name, source in sources.items()}
    assert len(writers.pop("fold.py")) > 30
    assert {name: set(written) for name, written in writers.items() if written} == {
        "outbox.py": {"self._feed.state.queue", "state.queue"},
        "chats.py": {"state.phase"},  # that from before a chat was looked for in vain
    }


@pytest.mark.parametrize(
    "line",
    [
        "self.state.phase = 'busy'",
        "state.queue.append(text)",
        "copied, self._state.error = state, ''",
        "del state.messages[3:]",
        "self.feed.state.context += 1",
    ],
)
def test_another_writer_would_be_seen(line):
    assert list(written_in(line))


@pytest.mark.parametrize("line", ["self.state = fold(events)", "found = state.phase"])
def test_reading_a_state_or_taking_another_one_is_no_writing(line):
    assert not list(written_in(line))
