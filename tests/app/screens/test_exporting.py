"""Exports from a chat: where the file is, or why there is none, in words."""

import pytest

from mlxspec_app.conversation.fold import fold
from mlxspec_app.screens.conversation.exporting import export
from tests.traces import make_fake


class Page:
    """Notes what it is told. What runs beside it waits for `settle`."""

    def __init__(self):
        self.told, self._beside = [], []

    def notify(self, message, **_):
        self.told.append(message)

    def run_worker(self, work, *, exit_on_error):
        self._beside.append(work)

    async def settle(self):
        while self._beside:
            await self._beside.pop(0)


@pytest.fixture
def page():
    return Page()


@pytest.fixture
def state():
    return fold(make_fake.chat())


async def test_the_file_holds_the_conversation_as_it_stood_when_it_was_asked_for(
    page, state, tmp_path
):
    target = tmp_path / "chat.md"
    export(page, state, f"md {target}")
    state.messages.clear()
    await page.settle()
    assert page.told == [f"{target} ({target.stat().st_size / 1000:.0f} kB)"]
    assert make_fake.PROSE.splitlines()[0] in target.read_text(encoding="utf-8")


async def test_a_file_that_is_there_is_kept(page, state, tmp_path):
    target = tmp_path / "chat.md"
    target.write_text("mine")
    export(page, state, f"md {target}")
    await page.settle()
    assert page.told == [f"{target} already exists: name another file, or add --force"]
    assert target.read_text() == "mine"


async def test_what_cannot_be_written_is_said(page, state, tmp_path):
    (tmp_path / "file").touch()
    export(page, state, f"md {tmp_path / 'file' / 'chat.md'}")
    export(page, state, "pdf")
    export(page, fold([]), f"md {tmp_path / 'empty.md'}")
    await page.settle()
    assert "cannot be written" in " ".join(page.told)
    assert "there is no reply to export yet" in page.told
    assert len(page.told) == 3
