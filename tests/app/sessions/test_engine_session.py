"""The live session: one thread for everything, and errors that become events."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from mlxspec.errors import MlxspecError, ModelNotFoundError, UnsupportedModelError
from mlxspec.loading import load_model
from mlxspec.params import SamplingParams
from mlxspec.trace.difference import Proof
from mlxspec.trace.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    SpeedupMeasured,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import (
    AlternativesFound,
    ChatCleared,
    ChatCut,
    LoadFailed,
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
    TableProgress,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import (
    Branch,
    FindAlternatives,
    Load,
    MakeTable,
    NewChat,
    Prove,
    Resume,
    Say,
    Stop,
)
from mlxspec_app.sessions.engine_session import EngineSession
from tests.support.app_live import PARAMS, PATIENCE_S, FakeConversation, FakeModels, Live
from tests.support.model_folders import save_folder, save_gguf
from tests.support.paired_reply import paired
from tests.traces import make_fake

FIRST = SessionOpening("t", "", ModelChoice("t", ""))
MANY = 10_000  # more than the events of a reply


@pytest.fixture
def live():
    live = Live()
    live.until_a(SessionReady)
    yield live
    live.session.close()


@pytest.fixture
def begun():
    """Begin sessions with models of a test; they end with it, however it ends."""
    begun = []

    def begin(open_conversation, **options):
        begun.append(Live(models=FakeModels(open_conversation), **options))
        return begun[-1]

    yield begin
    for live in begun:
        live.session.close()


class Opening:
    """Opens a fake conversation with each model, but not with one that is broken."""

    def __init__(self, *broken, error=None):
        self.opened, self.broken = [], broken
        self._error = error or UnsupportedModelError("it cannot be run")

    def __call__(self, choice, on_progress):
        self.opened.append(choice.model)
        if choice.model in self.broken:
            raise self._error
        return FakeConversation(on_progress)


def downloading(entered):
    """Open a fake conversation, except with the model "large", of which a download never ends."""

    def open_conversation(choice, on_progress):
        while choice.model == "large":
            entered.set()
            on_progress(1, 100)
            time.sleep(0.001)
        return FakeConversation(on_progress)

    return open_conversation


def test_loading_is_told_as_it_goes(begun):
    live = begun(Opening())
    live.until_a(SessionReady)
    assert live.news == [FIRST, LoadProgress(49, 98), SessionReady()]


def test_a_model_of_the_disk_has_one_name_before_and_after_its_load(live, tmp_path):
    folder, file = save_folder(tmp_path / "tiny-0.5b"), tmp_path / "tiny-0.5b-q4.gguf"
    save_gguf(file)
    names = {folder: "tiny-0.5b", file: "tiny-0.5b-q4"}
    for source, name in names.items():
        assert load_model(source).name == name
    for source, name in (*names.items(), ("org/q4.1", "org/q4.1")):
        live.session.send(Load(ModelChoice(str(source), "")))
        assert live.until_a(SessionOpening).target == name


# ---- orders --------------------------------------------------------------------------------


def test_a_message_is_answered_with_the_events_of_the_conversation_and_the_settings(live):
    live.session.settings.adjust("temp", "0.5")
    live.say("hi")
    assert live.news == list(make_fake.FakeEngine().reply("hi", make_fake.PROSE))
    assert live.conversation.said == [("hi", replace(PARAMS, sampling=SamplingParams(0.5)))]


def test_the_thread_that_loads_also_generates_and_is_no_daemon(live):
    live.say("hi")
    thread = next(t for t in threading.enumerate() if t.name == "mlxspec-engine")
    assert live.conversation.threads == {thread.ident}
    assert not thread.daemon


def test_stopping_reaches_past_an_order_that_waits_and_the_next_reply_runs(live):
    live.conversation.gate = threading.Semaphore(8)
    live.session.send(Say("hi"))
    live.until_a(PlainDecoded, GenerationStarted)
    live.session.send(NewChat())
    live.session.send(Stop())
    live.conversation.gate.release(MANY)
    assert live.until_a(GenerationFinished).reason == "cancelled"
    live.until(lambda event: isinstance(event, ChatCleared))
    live.session.send(Stop())  # too late for the reply before
    assert live.say("and now").reason == "stop"


def test_busy_until_the_last_event_is_there(live):
    assert not live.session.busy
    live.conversation.gate = threading.Semaphore(0)
    live.session.send(Say("hi"))
    assert live.session.busy
    live.conversation.gate.release(MANY)
    live.until_a(GenerationFinished)
    deadline = time.monotonic() + PATIENCE_S
    while live.session.busy and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not live.session.busy
    assert live.session.drain() == []


def test_an_error_becomes_an_event_and_the_session_lives_on(live):
    live.conversation.error = ZeroDivisionError("by zero")
    live.session.send(Say("hi"))
    failed = live.until_a(GenerationFailed)
    assert failed.message == "ZeroDivisionError: by zero"
    assert "Traceback" in failed.traceback
    live.conversation.error = None
    live.say("hi")


def test_a_proof_is_told_as_it_goes_and_why_there_is_none(live):
    live.session.send(Prove())
    live.until_a(ProofFinished)
    assert live.news[-2:] == [ProofProgress(1, 2), ProofFinished(Proof(2, 2))]
    live.conversation.error = ValueError("a sampled reply is one draw of many")
    live.session.send(Prove())
    assert live.until_a(OrderRefused) == OrderRefused("a sampled reply is one draw of many")


def test_what_a_session_is_told_is_news_unless_it_is_a_warning(live):
    live.session.notify("chats cannot be saved")
    live.session.say("drafter pool, fastest of 4 on this machine")
    live.session.say("warning: the drafter 'eagle3' is left out: no file")
    state = fold([*live.news, *live.session.drain()])
    assert state.news == ["drafter pool, fastest of 4 on this machine"]
    left_out = "the drafter 'eagle3' is left out: no file"
    assert state.notices == ["chats cannot be saved", left_out]


def refuse_a_turn(live):
    """A turn that is on the screen alone."""
    live.conversation.error = ModelNotFoundError("too long")
    live.session.send(Say("refused"))
    live.until_a(GenerationFailed)
    live.conversation.error = None


def test_what_else_was_possible_is_asked_of_the_turn_that_the_model_knows(live):
    asked = []
    conversation = live.conversation
    known = conversation.alternatives
    conversation.alternatives = lambda *place: asked.append(place) or known(*place)
    refuse_a_turn(live)
    live.say("hi")
    live.session.send(FindAlternatives(1, 3))
    found = live.until_a(AlternativesFound)
    assert asked == [(0, 3)]
    assert (found.turn, found.position) == (1, 3)
    assert [each.text for each in found.found] == [" sea", " lake"]
    conversation.error = ValueError("no such token")
    live.session.send(FindAlternatives(1, 99))
    assert live.until_a(AlternativesFound).message == "no such token"


def test_a_branch_is_of_the_turn_that_the_model_knows_and_a_refused_one_changes_nothing(live):
    conversation = live.conversation
    refuse_a_turn(live)
    for text in ("hi", "more"):
        live.say(text)
    conversation.error = ValueError("the grammar forbids token 5")
    live.session.send(Branch(1, 3, 5))
    assert live.until_a(AlternativesFound).message == "the grammar forbids token 5"
    assert not any(isinstance(event, ChatCut | ReplyDiscarded) for event in live.news)
    conversation.error = None
    live.session.send(Branch(1, 3, 5))
    live.until_a(GenerationFinished)
    assert conversation.said[-1] == ("branch", 0, 3, 5, PARAMS)
    assert live.news[:2] == [ChatCut(2), ReplyDiscarded()]


def test_a_reply_goes_on_in_place_of_its_cut_form_unless_the_model_refuses(live):
    live.say("hi")
    live.conversation.error = ValueError("only its text is known")
    live.session.send(Resume())
    assert live.until_a(OrderRefused).message == "only its text is known"
    assert not any(isinstance(event, ReplyDiscarded) for event in live.news)
    live.conversation.error = None
    live.session.send(Resume())
    live.until_a(GenerationFinished)
    assert live.conversation.said[-1] == ("on", PARAMS)
    assert live.news[0] == ReplyDiscarded()


# ---- other models --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModelNotFoundError("no model 't'; see mlxspec models"),
            "no model 't'; see mlxspec models",
        ),
        (SystemExit(1), "SystemExit: 1"),  # from the code of a model
    ],
)
def test_another_model_can_be_loaded_after_a_first_one_that_could_not(begun, error, message):
    live = begun(Opening("t", error=error))
    failed = live.until_a(SessionFailed)
    assert (failed.message, failed.is_over) == (message, False)
    live.load("u", "d")
    assert live.news[0] == SessionOpening("u", "d", ModelChoice("u", "d"))


def test_the_model_before_returns_when_another_cannot_be_loaded(begun):
    opening = Opening("broken")
    live = begun(opening)
    live.until_a(SessionReady)
    live.load("broken")
    assert opening.opened == ["t", "broken", "t"]
    failed = next(event for event in live.news if isinstance(event, LoadFailed))
    assert (failed.choice, failed.message) == (ModelChoice("broken", ""), "it cannot be run")
    assert "Traceback" in failed.traceback
    live.say("hi")


def test_where_the_model_before_cannot_return_either_another_can_still_be_loaded(begun):
    opening = Opening()
    live = begun(opening)
    live.until_a(SessionReady)
    opening.broken = ("t", "broken")
    live.session.send(Load(ModelChoice("broken")))
    assert live.until_a(SessionFailed) == SessionFailed("it cannot be run", ANY, is_over=False)
    live.load("u")
    assert opening.opened == ["t", "broken", "t", "u"]


def test_a_download_is_stopped_and_the_model_before_returns(begun):
    entered = threading.Event()
    live = begun(downloading(entered))
    live.until_a(SessionReady)
    live.session.send(Load(ModelChoice("large")))
    assert entered.wait(PATIENCE_S)
    live.session.send(Stop())
    assert live.until_a(LoadFailed).message.startswith("the download was stopped")
    live.until(lambda event: isinstance(event, SessionReady))
    assert live.news[-3] == FIRST


# ---- other drafters ------------------------------------------------------------------------


class NotingModels(FakeModels):
    """Models whose drafter changes, unless it is called "broken"."""

    def __init__(self):
        super().__init__()
        self.asked, self.noted, self.is_another = [], [], False

    def change_drafter(self, choice, on_progress):
        if choice.drafter == "broken":
            raise UnsupportedModelError("'broken' cannot draft")
        self.asked.append(choice.drafter)

    def note_reply(self, speedup, is_sampled):
        self.noted.append((speedup, is_sampled))
        return "drafter pool: slow" if len(self.noted) == 1 else ""

    def choose_again(self, sampling, should_stop):
        if self.is_another is None:
            raise MemoryError("too large")
        self.asked.append(sampling.temperature)
        return self.is_another

    def release(self):
        self.asked.append("release")


@pytest.fixture
def models():
    return NotingModels()


@pytest.fixture
def switching(models):
    """A session with these models, whose replies have rounds of both kinds."""
    live = Live(models=models)
    live.until_a(SessionReady)
    live.conversation._events = lambda text, should_stop: paired(80)
    yield live
    live.session.close()


def test_the_conversation_and_its_cache_stay_where_only_the_drafter_changes(switching, models):
    before = switching.conversation
    switching.load("t", "table")
    assert switching.news[0] == SessionOpening("t", "table", ModelChoice("t", "table"))
    assert switching.conversation is before
    assert models.asked == ["release", "table"]
    switching.load("u", "table")
    assert switching.conversation is not before
    assert models.asked == ["release", "table", "release"]
    switching.session.close()
    assert models.asked == ["release", "table", "release", "release"]


def test_a_drafter_that_cannot_be_leaves_the_one_before_and_the_cache(switching, models):
    before = switching.conversation
    switching.load("t", "broken")
    failed, *again = switching.news[1:]
    assert isinstance(failed, LoadFailed)
    assert again == [FIRST, SessionReady()]
    assert switching.conversation is before
    assert models.asked == ["release"]


def test_a_drafter_that_replies_contradict_is_measured_again_in_use(switching, models):
    models.is_another = True
    switching.session.settings.adjust("temp", "0.5")
    switching.session.send(Say("hi"))
    notice = switching.until_a(SessionNotice)
    assert notice.message == "drafter pool: slow; the drafters are measured again"
    assert not notice.is_trouble
    switching.until(lambda event: isinstance(event, SessionReady))
    assert switching.news[-2:] == [FIRST, SessionReady()]
    switching.session.close()
    assert models.noted == [(ANY, False)]  # the fake's replies are greedy
    assert models.asked == ["release", 0.5, "release"]


@pytest.mark.parametrize(("is_another", "num_troubles"), [(False, 0), (None, 1)])
def test_a_drafter_that_stays_goes_on_and_a_copy_counts_for_nothing(
    switching, models, is_another, num_troubles
):
    models.is_another = is_another
    switching.session.send(Say("hi"))
    switching.until_a(SpeedupMeasured)
    switching.session.send(Say("hi"))  # the fake says the same again
    switching.until(lambda event: isinstance(event, SpeedupMeasured) and event.copied)
    assert not any(isinstance(event, SessionOpening) for event in switching.news)
    troubles = [e for e in switching.news if isinstance(e, SessionNotice) and e.is_trouble]
    assert len(troubles) == num_troubles
    switching.session.close()
    assert len(models.noted) == 1


class WritingModels(FakeModels):
    """Models whose table is never ready, or cannot be made."""

    def __init__(self):
        super().__init__()
        self.steps, self.is_closed, self.error = 0, False, None

    def make_table(self):
        try:
            while True:
                self.steps += 1
                yield TableProgress(0.5, self.steps)
                if self.error is not None:
                    raise self.error
        finally:
            self.is_closed = True


@pytest.fixture
def writing():
    live = Live(models=WritingModels())
    live.until_a(SessionReady)
    live.session.send(MakeTable())
    live.until_a(TableProgress)
    yield live
    live.session.close()


def test_a_table_waits_while_somebody_asks_and_goes_on_afterwards(writing):
    assert not writing.session.busy
    writing.say("hi")
    steps = writing.models.steps
    writing.until(lambda event: isinstance(event, TableProgress) and event.num_tokens > steps)
    assert not writing.models.is_closed
    started = [type(event) for event in writing.news].index(GenerationStarted)
    ended = [type(event) for event in writing.news].index(GenerationFinished)
    assert not any(isinstance(event, TableProgress) for event in writing.news[started:ended])


def test_the_same_order_ends_a_table(writing):
    writing.session.send(MakeTable())
    writing.until(lambda event: isinstance(event, TableProgress) and event.share is None)
    assert writing.models.is_closed
    steps = writing.models.steps
    writing.say("hi")
    assert writing.models.steps == steps


def test_other_models_end_a_table(writing):
    writing.load("u")
    assert writing.models.is_closed
    assert TableProgress(None) in writing.news


def test_a_table_that_cannot_be_made_leaves_the_chat(writing):
    writing.models.error = MlxspecError("too little text")
    told = writing.until(lambda event: "no table" in getattr(event, "message", ""))
    assert told == SessionNotice("no table was made: too little text")
    writing.say("hi")


# ---- traces and the end --------------------------------------------------------------------


def test_every_event_is_in_the_trace(begun, tmp_path):
    live = begun(Opening(), trace=tmp_path / "t.jsonl")
    live.until_a(SessionReady)
    live.say("hi")
    live.session.close()
    assert list(read_trace(tmp_path / "t.jsonl")) == live.news


def test_a_full_disk_ends_the_trace_and_not_the_reply(begun, tmp_path):
    def write(text):
        raise OSError(28, "No space left on device")

    live = begun(Opening(), trace=tmp_path / "t.jsonl")
    live.until_a(SessionReady)
    live.session._trace._file.close()
    live.session._trace._file = SimpleNamespace(write=write, close=lambda: None)
    live.say("hi")
    (notice,) = (event.message for event in live.news if isinstance(event, SessionNotice))
    assert "No space left" in notice


def test_a_trace_that_cannot_be_opened_is_told_at_once(begun, tmp_path):
    failed = begun(Opening(), trace=tmp_path).until_a(SessionFailed)
    assert "cannot write the trace" in failed.message
    assert failed.is_over


def test_closing_waits_for_the_thread(live):
    live.session.send(Say("hi"))
    live.session.close()
    live.session.close()
    assert "mlxspec-engine" not in [thread.name for thread in threading.enumerate()]
    EngineSession(FakeModels(), None).close()  # of a session that never started


def test_closing_breaks_a_download_off(begun):
    entered = threading.Event()
    live = begun(downloading(entered), choice="large")
    assert entered.wait(PATIENCE_S)
    live.session.close()
    assert not any(isinstance(event, SessionFailed) for event in live.session.drain())


LEAVES_STREAMS_BEHIND = """
import time
from mlxspec_app.sessions.driver import NoModel
from mlxspec_app.sessions.engine_session import EngineSession
from mlxspec_app.conversation.events import SessionReady
from tests.support.app_live import FakeModels

def open_conversation(choice, on_progress):
    import mlx.core as mx
    mx.random.seed(1)
    array = mx.random.normal((256, 256))
    for _ in range(20):
        array = array @ array
        mx.async_eval(array)
    conversation = NoModel()
    conversation.array = array
    return conversation

session = EngineSession(FakeModels(open_conversation), None)
session.start()
while not any(isinstance(event, SessionReady) for event in session.drain()):
    time.sleep(0.01)
session.close()
"""


def test_the_process_ends_in_peace_after_mlx_ran_in_the_thread():
    for _ in range(2):  # without the clean-up about nine of ten processes abort
        done = subprocess.run(
            [sys.executable, "-c", LEAVES_STREAMS_BEHIND],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
