"""Loading other models in the middle of a chat, and a chat that has no model at all."""

from mlxspec.trace.events import DrafterFailed, GenerationFinished, GenerationStarted, TurnStarted
from mlxspec_app.conversation.events import (
    LoadFailed,
    LoadProgress,
    ModelChoice,
    SessionFailed,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Say, Stop
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.screens.models import ModelsScreen
from mlxspec_app.screens.replay import DemoScreen
from mlxspec_app.user_data import find_user_data
from tests.support.app_driver import running
from tests.support.fake_catalogue import FakeCatalogue
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake

NOW = ModelChoice("", "pool", 512)
OPENING = SessionOpening("smol", "pool", NOW)
FETCHING = (SessionOpening("org/x", "auto", ModelChoice("org/x")), LoadProgress(45, 100))
BACK = (LoadFailed(ModelChoice("org/x"), "no network: connect"), OPENING, SessionReady())
FAILED = (OPENING, SessionFailed("smol is not here: connect to the network"))
STOPPED = (
    TurnStarted("user", "hi"),
    GenerationStarted("smol", "pool"),
    GenerationFinished(1.0, "cancelled"),
)


def chatting(*news, **options):
    return running(ScriptedSession(OPENING, SessionReady(), *make_fake.chat(), *news), **options)


async def tell(driver, *news):
    driver.session.news += news
    await driver.settle()


async def test_without_a_name_the_picker_opens(tmp_path):
    user_data = find_user_data(tmp_path)
    user_data.catalogue = FakeCatalogue()
    async with chatting(user_data=user_data) as driver:
        for line, focus in (("/model", "models"), ("/draft", "drafters")):
            await driver.say(line)
            assert isinstance(driver.app.screen, ModelsScreen)
            assert driver.app.focused.id == focus
            await driver.press("escape")


async def test_a_download_shows_above_the_conversation_and_what_is_typed_waits_for_it():
    async with chatting(*STOPPED, *FETCHING, size=(120, 30)) as driver:
        assert "downloading org/x 45 %" in driver.shown
        await driver.say("And then?")
        assert "waits  And then?" in driver.shown
        await tell(driver, SessionReady())
        assert driver.session.orders[-1] == Say("And then?")
        await tell(driver, *FETCHING)
        await driver.press("escape")
        assert driver.session.orders[-1] == Stop()
        await tell(driver, *BACK)  # a failed load is a row with a key until something is said
        assert "org/x could not be loaded: no network: connect" in driver.shown
        assert "Ctrl+O chooses another" in driver.shown
        assert "smol ◂ pool" in driver.shown
        await tell(driver, TurnStarted("user", "hi"))
        assert "could not be loaded" not in driver.shown


def test_another_attempt_forgets_the_failure_before():
    state = fold([OPENING, SessionReady(), *FETCHING, *BACK])
    assert state.load_failure == BACK[0]
    assert state.choice == NOW
    assert fold(FETCHING, state).load_failure is None


async def test_a_chat_without_a_model_offers_ways_out():
    async with running(ScriptedSession(*FAILED), size=(120, 30)) as driver:
        assert "smol is not here: connect to the network" in driver.shown
        for words in ("try again", "choose another model", "recorded chat", "quit"):
            assert words in driver.shown
        assert "no model" in driver.shown.splitlines()[0]
        await driver.press("f6")
        assert isinstance(driver.app.screen, DemoScreen)
        assert not driver.app.screen.recording.playhead.paused
        await driver.press("escape", "shift+tab", "enter")
        assert driver.session.loads == [NOW]
        await driver.press("ctrl+r")
        assert driver.session.loads == [NOW, NOW]
        await tell(driver, OPENING)
        assert "smol is not here" not in driver.shown
        assert "loading smol" in driver.shown
        await tell(driver, SessionReady(), *STOPPED, SessionFailed("smol is broken"))
        assert "no model is loaded: smol is broken" in driver.shown
        assert "Ctrl+R tries again, Ctrl+O chooses another" in driver.shown


async def test_a_session_that_is_over_offers_no_other_model():
    over = SessionFailed("the trace cannot be written", is_over=True)
    async with running(ScriptedSession(OPENING, over)) as driver:
        assert "try again" not in driver.shown
        assert "recorded chat" in driver.shown
        await driver.press("ctrl+o", "ctrl+r")
        assert driver.session.loads == []


async def test_a_drafter_that_breaks_down_is_told_and_marked():
    async with chatting(DrafterFailed(1.0, "pool", "no memory")) as driver:
        failure = "the drafter pool failed, so the model continues without it: no memory"
        assert failure in driver.shown
        assert "guessing off" in driver.shown.splitlines()[0]
        await tell(driver, TurnStarted("user", "hi"), GenerationStarted("smol", "pool"))
        assert "guessing off" not in driver.shown


def test_a_fault_of_the_drafter_is_told_again():
    fault = DrafterFailed(1.0, "pool", "no memory")
    state = fold([*STOPPED[:2], fault, STOPPED[2]])
    assert fold(events_of(state)).reply.drafter_fault == "no memory"
