"""The model that fits a machine: offered beside the embedded one, fetched behind the chat."""

import asyncio
import time
from dataclasses import replace

import pytest

from mlxspec.drafting.entries import ModelEntry
from mlxspec.params import DEFAULT_MODEL
from mlxspec_app.conversation.events import ModelChoice, SessionOpening, SessionReady
from mlxspec_app.conversation.orders import Load, Say
from mlxspec_app.screens.chat.better_model import short_name
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import running
from tests.support.fake_catalogue import SMALL, FakeCatalogue
from tests.support.fake_hub import fetch_from, serving
from tests.support.model_folders import save_folder
from tests.support.scripted_session import ScriptedSession

NAME = "org/LFM2.5-1.2B-Instruct-4bit"
WANTED = ModelEntry(NAME, NAME, 0.66, is_here=False, memory_gb=0.7, licence="LFM 1.0")
NOW = ModelChoice("", "pool")
OFFER = "SmolLM2-135M is a small model that comes with mlxspec"


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("mlx-community/LFM2.5-1.2B-Instruct-4bit", "LFM2.5-1.2B"),
        ("mlx-community/Qwen3.5-4B-MLX-4bit", "Qwen3.5-4B"),
        ("mlx-community/Qwen3-30B-A3B-4bit", "Qwen3-30B-A3B"),
        ("gemma-3-4b-it", "gemma-3-4b"),
    ],
)
def test_a_name_is_short(source, short):
    assert short_name(source) == short


class Chat:
    """A chat with the embedded model, and a catalogue that recommends another."""

    def __init__(self, tmp_path, model=WANTED, target=DEFAULT_MODEL):
        self.catalogue = FakeCatalogue([SMALL, model])
        self.catalogue.recommends = model
        self.user_data = find_user_data(tmp_path / "data")
        self.user_data.catalogue = self.catalogue
        opening = SessionOpening(target, "pool", NOW)
        self.session = ScriptedSession(opening, SessionReady())

    def running(self, **how):
        return running(self.session, user_data=self.user_data, **how)


async def until(driver, words):
    end = time.monotonic() + 20
    while words not in " ".join(driver.shown.split()):
        assert time.monotonic() < end, driver.shown
        await asyncio.sleep(0.02)
        await driver.settle()


async def test_f_and_enter_fetch_behind_the_chat_which_goes_on_with_it_when_told_to(tmp_path):
    chat = Chat(tmp_path)
    async with chat.running(size=(120, 30)) as driver:
        await until(driver, f"{OFFER}; for better answers: f Enter downloads LFM2.5-1.2B, 660 MB")
        assert chat.catalogue.fetched == []  # nothing unasked
        await driver.press("f", "enter")
        await until(driver, f"downloading {NAME} 10 %")
        assert "Esc stops it" in driver.shown
        await driver.say("hello")  # the chat is answered meanwhile
        assert chat.session.orders[-1] == Say("hello")
        chat.catalogue.gate.release(2)
        await until(driver, f"{NAME} is here: Enter loads it Esc stays")
        assert chat.session.loads == []
        await driver.press("enter")
        assert chat.session.orders[-1] == Load(ModelChoice(NAME, "auto"))
        assert driver.app.settings.model == NAME


async def test_escape_stops_it_and_stays_and_the_command_goes_on(tmp_path):
    chat = Chat(tmp_path)
    async with chat.running(size=(120, 30)) as driver:
        await until(driver, OFFER)
        await driver.say("/fetch")
        await until(driver, f"downloading {NAME} 10 %")
        await driver.press("escape")
        chat.catalogue.gate.release()
        await until(driver, "the download was stopped; f resumes it")
        await driver.say("/fetch stop")
        await until(driver, OFFER)
        await driver.say("/fetch")
        chat.catalogue.gate.release(2)
        await until(driver, "is here: Enter loads it")
        chat.catalogue.recommends = replace(WANTED, is_here=True)
        await driver.press("escape")
        await until(driver, "for better answers: f Enter loads LFM2.5-1.2B")
        assert chat.session.loads == []
        assert driver.app.settings.model == ""


async def test_a_message_that_begins_with_f_is_a_message_and_only_the_small_model_is_offered_more(
    tmp_path,
):
    chat = Chat(tmp_path)
    async with chat.running(size=(120, 30)) as driver:
        await until(driver, OFFER)
        await driver.press(*"fix", "enter")
        assert (chat.session.orders[-1], chat.catalogue.fetched) == (Say("fix"), [])
    chat = Chat(tmp_path, target="org/other")
    async with chat.running(size=(120, 30)) as driver:
        await driver.pilot.pause(0.3)
        assert OFFER not in driver.shown
        await driver.press("f", "enter")
        assert (chat.session.orders[-1], chat.catalogue.fetched) == (Say("f"), [])
        await driver.press("enter")
        assert chat.session.orders[-1] == Say("f")
        assert driver.app.screen.query_one(Prompt).text == ""


async def test_where_no_model_fits_none_is_offered_and_the_command_says_so(tmp_path):
    chat = Chat(tmp_path)
    chat.catalogue.recommends = None
    async with chat.running(size=(120, 30)) as driver:
        await driver.say("/fetch")
        await until(driver, "no model is known to fit")
        assert OFFER not in driver.shown
        assert chat.catalogue.fetched == []


async def test_a_real_download_whose_connection_drops_ends_with_all_its_bytes(
    tmp_path, monkeypatch
):
    from mlxspec_cli.chat_models import ChatCatalogue

    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    folder = save_folder(tmp_path / "original")
    weights = bytes(range(256)) * (96 << 10)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"model.safetensors": weights}
    with serving(files) as remote:
        fetch_from(monkeypatch, tmp_path, remote.url)
        remote.drops += [11 << 20]
        chat = Chat(tmp_path, replace(WANTED, source="org/tiny", name="org/tiny"))
        chat.catalogue.fetch = ChatCatalogue().fetch
        async with chat.running(size=(120, 30)) as driver:
            await until(driver, "f Enter downloads tiny")
            await driver.press("f", "enter")
            await driver.say("hello")
            assert chat.session.orders[-1] == Say("hello")
            await until(driver, "org/tiny is here: Enter loads it")
    (found,) = (tmp_path / "cache").rglob("snapshots/*/model.safetensors")
    assert found.read_bytes() == weights
    assert ("model.safetensors", 10 << 20) in remote.starts
