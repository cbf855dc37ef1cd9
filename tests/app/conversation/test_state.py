"""The fold of events into what the screen shows."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.difference import Difference, Proof
from mlxspec.trace.events import (
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
    OrderRefused,
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


def test_figures_are_those_of_the_library():
    stats = GenerationStats()
    for event in make_fake.tree():
        stats.add(event)
    assert fold(make_fake.tree()).reply.stats == stats


TURN, OTHER = TurnStarted("user", "one"), TurnStarted("user", "two")
END = GenerationFinished(1.0, "stop")


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([TurnStarted("system", "s"), TURN, STARTED, plain("yes"), END], ["s", "one", "yes"]),
        ([STARTED, plain("a"), GenerationFinished(1.0, "stop", "tail")], ["atail"]),
        ([STARTED, plain("a"), STARTED, plain("b")], ["a", "b"]),  # no turn between them
        ([TURN, STARTED, plain("half"), GenerationFailed(1.0, "broke")], ["one", "half"]),
        ([TURN, GenerationFailed(0.0, "too long")], ["one", ""]),
        ([TURN, STARTED, plain("a"), END, ReplyDiscarded(), STARTED, plain("b")], ["one", "b"]),
        ([TURN, STARTED, plain("a"), END, ReplyDiscarded(), TURN, STARTED], ["one", ""]),
        ([TURN, STARTED, END, ReplyDiscarded(), TURN, STARTED, END, TURN], ["one", "", "one"]),
        ([TURN, STARTED, END, OTHER, ChatCut(0)], []),
        ([TURN, STARTED, END, OTHER, ChatCut(1)], ["one", ""]),
        ([TURN, STARTED, END, OTHER, ChatCut(2)], ["one", "", "two"]),
    ],
)
def test_messages_are_what_was_said_and_not_taken_back(events, texts):
    assert [message.text for message in fold(events).messages] == texts


def test_every_span_knows_who_wrote_it_when_and_from_which_draft():
    nodes = (
        DraftNode(1, 0, 5, " a", 0.5, "table"),
        DraftNode(2, 0, 6, " b", 0.4, "eagle3"),
        DraftNode(3, 2, 7, " c", 0.4, "suffix"),
    )
    emit = (
        EmittedToken(6, " b", "accepted", 0.6, 0.4),
        EmittedToken(7, " c", "accepted", 0.6, 0.4),
        EmittedToken(8, "", "bonus", 0.6),
    )
    draft = DraftProposed(1, 0.1, 4, nodes, 1.5)
    end = GenerationFinished(1.0, "stop", "tail")
    state = fold([STARTED, draft, verified(*emit, path=(2, 3)), plain("d", r=2), end])
    assert [(span.text, span.kind, span.round, span.source) for span in state.reply.spans] == [
        (" b", "accepted", 1, "eagle3"),
        (" c", "accepted", 1, "suffix"),
        ("d", "plain", 2, ""),
        ("tail", "plain", 2, ""),  # text held back to the end belongs to the last token
    ]
    assert (state.reply.spans[0].target_prob, state.reply.spans[0].draft_prob) == (0.6, 0.4)
    assert [round_.draft for round_ in state.reply.rounds] == [draft, None]
    assert fold([STARTED, DRAFT, verified(r=2)]).last_round.draft is None  # of another round


def test_phases_follow_the_session():
    state = fold([SessionOpening("t", "d")])
    phases = [state.phase]
    system = TurnStarted("system", "be brief")  # which does not wait for a reply
    for event in (SessionReady(), system, TURN, STARTED, END, STARTED, GenerationFailed(1.0, "x")):
        apply(state, event)
        phases.append(state.phase)
    assert (state.target, state.drafter, state.context_length) == ("target", "drafter", 100)
    assert phases == ["loading", "ready", "ready", "busy", "busy", "ready", "busy", "ready"]
    assert (state.reply.error, state.reply.is_finished) == ("x", True)


def test_a_failed_load_says_why():
    state = fold([SessionOpening(), LoadProgress(1, 2), SessionFailed("no such model")])
    assert (state.phase, state.error, state.loading) == ("failed", "no such model", None)


def test_a_new_chat_is_empty():
    state = fold([*make_fake.chat(), TURN, STARTED, DRAFT, ChatCleared()])
    assert (state.messages, state.context, state.last_round, state.draft) == ([], 0, None, None)


def test_the_context_is_what_the_messages_in_view_take():
    said, restored = Message("user", [Span("x")]), Reply(reason="stop")
    restored.stats = GenerationStats(prompt_tokens=30, generated_tokens=12)
    state = fold([STARTED, plain("a"), GenerationFinished(1.0, "stop")])
    traced = state.reply
    assert fold([ChatOpened((said, restored))], state).context == 42  # a reply without its trace
    assert fold([ChatOpened((said, restored, said, traced))], state).context == 10
    assert fold([ChatOpened((said, restored, said))], state).context == 42
    assert fold([ChatOpened((said,))], state).context == 0
    fold([ChatOpened((said, restored)), TURN, STARTED, PrefillProgress(0.1, 8, 16)], state)
    assert state.context == 8  # what the cache holds
    apply(state, plain("b"))
    assert state.context == 10
    assert fold([ChatCut(1)], state).context == 42


def test_another_drafter_leaves_the_context_as_it_is():
    begun = SessionOpening("t", "pool", ModelChoice("t", "pool", 64))
    state = fold([begun, SessionReady(), STARTED, plain("a")])
    fold([SessionOpening("t", "none", ModelChoice("t", "none", 64)), SessionReady()], state)
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
        "the model alone: 1 of 9 tokens are the same",
    )
    fold([ProofFinished(proof)], state)
    assert (state.phase, state.reply.proof) == ("ready", proof.describe())
    assert state.reply.is_proven is is_proven


def test_a_proof_that_could_not_be_is_a_notice():
    state = fold([STARTED, plain("a"), OrderRefused("one draw of many")])
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


def test_turns_pair_what_was_said_with_what_was_answered():
    system, refused = TurnStarted("system", "be brief"), GenerationFailed(0.0, "too long")
    messages = fold([system, TURN, STARTED, plain("yes"), END, OTHER, refused]).messages
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
WRITES = re.compile(
    r"(?:^|[\s(._])(state\.[\w.]+)(?:\[.*?\])?"
    r"(?: [-+|]?= |\.(?:append|extend|insert|pop|remove|clear|sort|reverse)\()"
)


def test_the_fold_writes_the_state_and_a_screen_its_queue_alone():
    sources = {path.name: path.read_text() for path in APP.rglob("*.py")}
    writers = {name: WRITES.findall(source) for name, source in sources.items()}
    assert len(writers.pop("fold.py")) > 30
    assert {name: set(written) for name, written in writers.items() if written} == {
        "outbox.py": {"state.queue"},
        "chats.py": {"state.phase"},  # that from before a chat was looked for in vain
    }
