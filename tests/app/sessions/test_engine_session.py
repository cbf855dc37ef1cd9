"""The live session: one thread for everything, and errors that become events."""

import os
import subprocess
import sys
import threading
import time
from unittest.mock import ANY

import pytest

from mlxspec.budget import CostCurve
from mlxspec.errors import ModelNotFoundError, UnsupportedModelError
from mlxspec.loading import load_model
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.params.table import adjustable
from mlxspec.trace.difference import Proof
from mlxspec.trace.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec.trace.file import TraceWriter, read_trace
from mlxspec_app.conversation.events import (
    AlternativesFound,
    ChatCleared,
    ChatCut,
    LoadFailed,
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
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import (
    Branch,
    Edit,
    FindAlternatives,
    Load,
    NewChat,
    Prove,
    Regenerate,
    Say,
    Stop,
)
from mlxspec_app.sessions.engine_session import EngineSession
from tests.support.app_live import PARAMS, PATIENCE_S, FakeConversation, FakeModels, Live
from tests.support.model_folders import save_folder, save_gguf
from tests.traces import make_fake


@pytest.fixture
def live():
    live = Live()
    live.until_a(SessionReady)
    yield live
    live.session.close()


def test_loading_is_told_as_it_goes():
    live = Live()
    live.until_a(SessionReady)
    assert live.news == [
        SessionOpening("t", "", ModelChoice("t", "")),
        LoadProgress(49, 98),
        SessionReady(),
    ]
    live.session.close()


def test_a_model_of_the_disk_has_one_name_before_and_after_its_load(live, tmp_path):
    folder, file = save_folder(tmp_path / "tiny-0.5b"), tmp_path / "tiny-0.5b-q4.gguf"
    save_gguf(file)
    names = {folder: "tiny-0.5b", file: "tiny-0.5b-q4"}
    for source, name in names.items():
        assert load_model(source).name == name
    for source, name in (*names.items(), ("org/q4.1", "org/q4.1")):
        live.session.send(Load(ModelChoice(str(source), "")))
        assert live.until_a(SessionOpening).target == name


def test_a_proof_is_told_as_it_goes(live):
    live.session.send(Prove())
    live.until_a(ProofFinished)
    assert live.news[-2:] == [ProofProgress(1, 2), ProofFinished(Proof(2, 2))]


def test_a_proof_that_cannot_be_says_why(live):
    live.conversation.error = ValueError("a sampled reply is one draw of many")
    live.session.send(Prove())
    live.until_a(ProofFinished)
    assert live.news[-1] == ProofFinished(None, "a sampled reply is one draw of many")


def test_settings_are_changed_by_name_and_hold_for_the_next_reply():
    conversation = FakeConversation(lambda done, total: None)
    models = FakeModels(lambda choice, on_progress: conversation)
    session = EngineSession(models, GenerationParams(seed=7))
    session.settings.adjust("temp", "0.5")
    session.start()
    session.send(Say("hello"))
    while session.busy:
        time.sleep(0.01)
    session.close()
    assert conversation.said == [
        ("hello", GenerationParams(sampling=SamplingParams(temperature=0.5), seed=7))
    ]
    assert session.settings.adjustable()["temp"] == "0.5"


def test_a_setting_that_cannot_be_is_refused_and_the_others_stay(live):
    with pytest.raises(ValueError, match="temperature must be"):
        live.session.settings.adjust("temp", "-1")
    assert live.session.settings.adjustable() == adjustable(PARAMS)


def test_what_a_session_is_told_is_shown(live):
    live.session.notify("which drafter is fastest is measured once")
    live.until_a(SessionNotice)
    assert live.news == [SessionNotice("which drafter is fastest is measured once")]


def test_what_the_library_says_is_news_unless_it_is_a_warning(live):
    live.session.say("drafter pool, fastest of 4 on this machine")
    live.session.say("warning: the drafter 'eagle3' is left out: no file")
    state = fold([*live.news, *live.session.drain()])
    assert state.news == ["drafter pool, fastest of 4 on this machine"]
    assert state.notices == ["the drafter 'eagle3' is left out: no file"]


def test_a_message_is_answered_with_the_events_of_the_conversation(live):
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    assert live.news == list(make_fake.FakeEngine().reply("hi", make_fake.PROSE))
    assert live.conversation.said == [("hi", PARAMS)]


def test_the_thread_that_loads_also_generates(live):
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    assert len(live.conversation.threads) == 1
    assert threading.get_ident() not in live.conversation.threads


def test_stopping_ends_the_reply_and_the_next_one_runs(live):
    live.conversation.gate = threading.Semaphore(8)
    live.session.send(Say("hi"))
    live.until_a(PlainDecoded, GenerationStarted)
    live.session.send(Stop())
    live.conversation.gate.release(1_000_000)
    assert live.until_a(GenerationFinished).reason == "cancelled"
    live.session.send(Say("and now"))
    assert live.until_a(GenerationFinished).reason == "stop"


def test_stopping_reaches_past_an_order_that_waits(live):
    live.conversation.gate = threading.Semaphore(8)
    live.session.send(Say("hi"))
    live.until_a(GenerationStarted)
    live.session.send(NewChat())
    live.session.send(Stop())
    live.conversation.gate.release(1_000_000)
    assert live.until_a(GenerationFinished).reason == "cancelled"
    live.until(lambda event: isinstance(event, ChatCleared))


def test_a_late_stop_does_not_touch_the_next_reply(live):
    live.session.send(Say("one"))
    live.until_a(GenerationFinished)
    live.session.send(Stop())
    live.session.send(Say("two"))
    assert live.until_a(GenerationFinished).reason == "stop"


def test_orders_are_carried_out_in_order(live):
    live.session.send(Say("one"))
    live.session.send(NewChat())
    live.session.send(Say("two"))
    live.until(lambda event: isinstance(event, TurnStarted) and event.text == "two")
    turns = [e for e in live.news if isinstance(e, TurnStarted | ChatCleared)]
    assert turns == [TurnStarted("user", "one"), ChatCleared(), TurnStarted("user", "two")]


def test_busy_until_the_last_event_is_there(live):
    assert not live.session.busy
    live.conversation.gate = threading.Semaphore(0)
    live.session.send(Say("hi"))
    assert live.session.busy
    live.conversation.gate.release(1_000_000)
    live.until_a(GenerationFinished)
    deadline = time.monotonic() + PATIENCE_S
    while live.session.busy and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not live.session.busy
    assert live.session.drain() == []


def test_regenerating_discards_the_reply_first(live):
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    live.session.send(Regenerate())
    live.until_a(GenerationFinished)
    assert isinstance(live.news[0], ReplyDiscarded)


def test_an_error_becomes_an_event_and_the_session_lives_on(live):
    live.conversation.error = ZeroDivisionError("by zero")
    live.session.send(Say("hi"))
    failed = live.until_a(GenerationFailed)
    assert failed.message == "ZeroDivisionError: by zero"
    assert "Traceback" in failed.traceback
    live.conversation.error = None
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)


def test_a_message_that_was_refused_is_shown_and_can_be_tried_again(live):
    live.conversation.error = ModelNotFoundError("too long")
    live.session.send(Say("my question"))
    live.until_a(GenerationFailed)
    state = fold(live.news)
    assert [m.text for m in state.messages] == ["my question", ""]
    assert state.reply.error == "too long"
    live.conversation.error = None
    live.session.send(Regenerate())
    live.until_a(GenerationFinished)
    assert [m.text for m in fold(live.news, state).messages] == ["my question", make_fake.PROSE]
    assert live.conversation.said[-1][0] == "my question"


def test_a_model_that_cannot_be_loaded_ends_the_session():
    def refuse(choice, on_progress):
        raise ModelNotFoundError("no model 'x'; see mlxspec models")

    live = Live(models=FakeModels(refuse))
    failed = live.until_a(SessionFailed)
    assert failed.message == "no model 'x'; see mlxspec models"
    live.session.close()


def test_code_of_a_model_that_ends_the_process_leaves_the_session_open():
    def open_conversation(choice, on_progress):
        if choice.model == "t":
            raise SystemExit(1)
        return FakeConversation(on_progress)

    live = Live(models=FakeModels(open_conversation))
    assert not live.until_a(SessionFailed).is_over
    live.session.send(Load(ModelChoice("u", "d")))
    live.until_a(SessionReady)
    live.session.close()


def test_another_model_can_be_loaded_after_a_first_one_that_could_not():
    def open_conversation(choice, on_progress):
        if choice.model == "t":
            raise ModelNotFoundError("no model 't'")
        return FakeConversation(on_progress)

    live = Live(models=FakeModels(open_conversation))
    live.until_a(SessionFailed)
    live.session.send(Say("hi"))
    assert "no model is loaded" in live.until_a(GenerationFailed).message
    live.session.send(Load(ModelChoice("u", "d")))
    live.until_a(SessionReady)
    assert live.news[0] == SessionOpening("u", "d", ModelChoice("u", "d"))
    live.session.send(Regenerate())
    live.until_a(GenerationFinished)
    live.session.close()


def test_the_model_before_returns_when_another_cannot_be_loaded():
    opened = []

    def open_conversation(choice, on_progress):
        opened.append(choice.model)
        if choice.model == "broken":
            raise UnsupportedModelError("'broken' is of a kind that cannot be run")
        return FakeConversation(on_progress)

    live = Live(models=FakeModels(open_conversation))
    live.until_a(SessionReady)
    live.session.send(Load(ModelChoice("broken")))
    live.until_a(SessionReady)
    assert opened == ["t", "broken", "t"]
    failed = next(event for event in live.news if isinstance(event, LoadFailed))
    assert failed.choice == ModelChoice("broken")
    assert failed.message == "'broken' is of a kind that cannot be run"
    assert "Traceback" in failed.traceback
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    live.session.close()


def test_the_conversation_goes_on_in_another_model(live):
    before = live.conversation
    before.turns = [("hi", "hello")]
    live.session.send(Load(ModelChoice("u")))
    live.until_a(SessionReady)
    assert live.conversation is not before
    assert live.conversation.turns == [("hi", "hello")]


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
        self.asked.append(sampling.temperature)
        return self.is_another

    def release(self):
        self.asked.append("release")


@pytest.fixture
def models():
    return NotingModels()


@pytest.fixture
def switching(models):
    live = Live(models=models)
    live.until_a(SessionReady)
    yield live
    live.session.close()


def test_the_conversation_and_its_cache_stay_where_only_the_drafter_changes(switching, models):
    before = switching.conversation
    switching.session.send(Load(ModelChoice("t", "table")))
    switching.until_a(SessionReady)
    assert switching.news[0] == SessionOpening("t", "table", ModelChoice("t", "table"))
    assert switching.conversation is before
    assert models.asked == ["release", "table"]
    switching.session.send(Load(ModelChoice("u", "table")))
    switching.until_a(SessionReady)
    assert switching.conversation is not before
    assert models.asked == ["release", "table", "release"]


def test_a_drafter_that_cannot_be_leaves_the_one_before_and_the_cache(switching, models):
    before = switching.conversation
    switching.session.send(Load(ModelChoice("t", "broken")))
    switching.until_a(SessionReady)
    assert [type(event) for event in switching.news] == [
        SessionOpening,
        LoadFailed,
        SessionOpening,
        SessionReady,
    ]
    assert switching.news[2] == SessionOpening("t", "", ModelChoice("t", ""))
    assert switching.conversation is before
    assert models.asked == ["release"]


def test_the_models_are_released_at_the_end(switching, models):
    switching.session.close()
    assert models.asked == ["release", "release"]


@pytest.fixture
def timed(switching, monkeypatch):
    """The session, with a plain forward whose cost is given."""
    curve = CostCurve({1: 20.0})
    monkeypatch.setattr(switching.conversation, "measure_cost", lambda should_stop: curve)
    return switching


def test_a_drafter_that_replies_contradict_is_measured_again_in_use(timed, models):
    models.is_another = True
    timed.session.settings.adjust("temp", "0.5")
    timed.session.send(Say("hi"))
    notice = timed.until_a(SessionNotice)
    assert notice.message == "drafter pool: slow; the drafters are measured again"
    assert not notice.is_trouble
    timed.until(lambda event: isinstance(event, SessionReady))
    assert timed.news[-2:] == [SessionOpening("t", "", ModelChoice("t", "")), SessionReady()]
    timed.session.close()
    assert models.noted == [(ANY, False)]  # the fake's replies are greedy
    assert models.asked == ["release", 0.5, "release"]


def test_a_drafter_that_stays_goes_on_without_a_word(timed, models):
    timed.session.send(Say("hi"))
    timed.until_a(SessionNotice)
    timed.session.send(Say("and now"))
    timed.until_a(SpeedupMeasured)
    assert not any(isinstance(event, SessionOpening) for event in timed.news)


def test_a_measurement_that_fails_ends_no_chat(timed, models, monkeypatch):
    def fail(sampling, should_stop):
        raise MemoryError("too large")

    monkeypatch.setattr(models, "choose_again", fail)
    timed.session.send(Say("hi"))
    timed.until(lambda event: isinstance(event, SessionNotice) and event.is_trouble)
    timed.session.send(Say("and now"))
    timed.until_a(GenerationFinished)


def test_a_copy_counts_for_nothing(timed, models):
    timed.session.send(Say("hi"))
    timed.until_a(SpeedupMeasured)
    timed.session.send(Say("hi"))  # the fake says the same again
    timed.until_a(SpeedupMeasured)
    timed.session.close()
    assert len(models.noted) == 1


def test_a_download_is_stopped_and_the_model_before_returns():
    entered, names = threading.Event(), []

    def open_conversation(choice, on_progress):
        names.append(choice.model)
        while choice.model == "large":
            entered.set()
            on_progress(1, 100)
            time.sleep(0.001)
        return FakeConversation(on_progress)

    live = Live(models=FakeModels(open_conversation))
    live.until_a(SessionReady)
    live.session.send(Load(ModelChoice("large")))
    assert entered.wait(PATIENCE_S)
    live.session.send(Stop())
    live.until_a(SessionReady)
    assert names == ["t", "large", "t"]
    assert any("stopped" in e.message for e in live.news if isinstance(e, LoadFailed))
    live.session.close()


def test_where_the_model_before_cannot_return_either_another_can_still_be_loaded():
    opened = []

    def open_conversation(choice, on_progress):
        opened.append(choice.model)
        if opened.count(choice.model) > 1 or choice.model == "broken":
            raise UnsupportedModelError(f"{choice.model} is broken")
        return FakeConversation(on_progress)

    live = Live(models=FakeModels(open_conversation))
    live.until_a(SessionReady)
    live.session.send(Load(ModelChoice("broken")))
    assert live.until_a(SessionFailed) == SessionFailed("t is broken", ANY, is_over=False)
    live.session.send(Load(ModelChoice("u")))
    live.until_a(SessionReady)
    assert opened == ["t", "broken", "t", "u"]
    live.session.close()


def test_an_edited_turn_is_answered_in_the_place_of_the_old_one(live):
    live.session.send(Say("one"))
    live.until_a(GenerationFinished)
    live.session.send(Edit(0, "other"))
    live.until_a(GenerationFinished)
    assert live.news[:2] == [ChatCut(0), TurnStarted("user", "other")]
    assert live.conversation.said == [("one", PARAMS), ("other", PARAMS)]


def test_closing_waits_for_the_thread():
    live = Live()
    live.until_a(SessionReady)
    live.session.send(Say("hi"))
    live.session.close()
    live.session.close()
    assert "mlxspec-engine" not in [thread.name for thread in threading.enumerate()]


def test_closing_breaks_a_download_off():
    entered = threading.Event()

    def download(choice, on_progress):
        entered.set()
        while True:
            on_progress(1, 100)
            time.sleep(0.001)

    live = Live(models=FakeModels(download))
    assert entered.wait(PATIENCE_S)
    live.session.close()
    assert not any(isinstance(event, SessionFailed) for event in live.session.drain())


def test_a_session_that_never_started_can_be_closed():
    EngineSession(FakeModels(), None).close()


def test_the_thread_is_no_daemon(live):
    thread = next(t for t in threading.enumerate() if t.name == "mlxspec-engine")
    assert not thread.daemon


def test_what_else_was_possible_is_asked_of_the_turn_that_the_model_knows(live):
    asked = []
    conversation = live.conversation
    known = conversation.alternatives
    conversation.alternatives = lambda *place: asked.append(place) or known(*place)
    conversation.error = ModelNotFoundError("too long")
    live.session.send(Say("refused"))
    live.until_a(GenerationFailed)
    conversation.error = None
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    live.session.send(FindAlternatives(1, 3))
    found = live.until_a(AlternativesFound)
    assert asked == [(0, 3)]  # the refused turn is on the screen alone
    assert (found.turn, found.position) == (1, 3)
    assert [each.text for each in found.found] == [" sea", " lake"]
    conversation.error = ValueError("no such token")
    live.session.send(FindAlternatives(1, 99))
    assert live.until_a(AlternativesFound).message == "no such token"


def test_a_branch_is_of_the_turn_that_the_model_knows_and_a_refused_one_changes_nothing(live):
    conversation = live.conversation
    conversation.error = ModelNotFoundError("too long")
    live.session.send(Say("refused"))
    live.until_a(GenerationFailed)
    conversation.error = None
    for text in ("hi", "more"):
        live.session.send(Say(text))
        live.until_a(GenerationFinished)
    conversation.error = ValueError("the grammar forbids token 5")
    live.session.send(Branch(1, 3, 5))
    assert live.until_a(AlternativesFound).message == "the grammar forbids token 5"
    assert not any(isinstance(event, ChatCut | ReplyDiscarded) for event in live.news)
    conversation.error = None
    live.session.send(Branch(1, 3, 5))
    live.until_a(GenerationFinished)
    assert conversation.said[-1] == ("branch", 0, 3, 5, PARAMS)
    assert live.news[:2] == [ChatCut(2), ReplyDiscarded()]


def test_every_event_is_in_the_trace(tmp_path):
    live = Live(trace=tmp_path / "t.jsonl")
    live.until_a(SessionReady)
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    live.session.close()
    assert list(read_trace(tmp_path / "t.jsonl")) == live.news


def test_a_trace_that_cannot_be_opened_is_told_at_once(tmp_path):
    live = Live(trace=tmp_path)
    assert "cannot write the trace" in live.until_a(SessionFailed).message
    live.session.close()


def test_a_full_disk_ends_the_trace_and_not_the_reply(tmp_path, monkeypatch):
    def write(self, text):
        raise OSError(28, "No space left on device")

    live = Live(trace=tmp_path / "t.jsonl")
    live.until_a(SessionReady)
    writer = live.session._trace
    assert isinstance(writer, TraceWriter)
    writer._file.close()
    writer._file = type("Full", (), {"write": write, "close": lambda self: None})()
    live.session.send(Say("hi"))
    live.until_a(GenerationFinished)
    notices = [event.message for event in live.news if isinstance(event, SessionNotice)]
    assert len(notices) == 1
    assert "No space left" in notices[0]
    live.session.close()


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
    for _ in range(4):  # without the clean-up about nine of ten processes abort
        done = subprocess.run(
            [sys.executable, "-c", LEAVES_STREAMS_BEHIND],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
