"""Exports from a chat: where the file is, or why there is none, in words."""

import pytest

from mlxspec_app.controllers.exporting import Exporter
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.conversation.fold import fold
from tests.support.fake_page import FakePage
from tests.traces import make_fake


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def exporter(page):
    feed = Feed(None)
    feed.state = fold(make_fake.chat())
    return Exporter(feed, page)


async def test_the_file_holds_the_conversation_as_it_stood_when_it_was_asked_for(
    exporter, page, tmp_path
):
    target = tmp_path / "chat.md"
    exporter.export(f"md {target}")
    exporter._feed.state.messages.clear()
    await page.settle()
    assert page.told == [f"{target} ({target.stat().st_size / 1000:.0f} kB)"]
    assert make_fake.PROSE.splitlines()[0] in target.read_text(encoding="utf-8")


async def test_a_file_that_is_there_is_kept(exporter, page, tmp_path):
    target = tmp_path / "chat.md"
    target.write_text("mine")
    exporter.export(f"md {target}")
    await page.settle()
    assert page.told == [f"{target} already exists: name another file, or add --force"]
    assert target.read_text() == "mine"


async def test_what_cannot_be_written_is_said(exporter, page, tmp_path):
    (tmp_path / "file").touch()
    exporter.export(f"md {tmp_path / 'file' / 'chat.md'}")
    exporter.export("pdf")
    exporter._feed.state = fold([])
    exporter.export(f"md {tmp_path / 'empty.md'}")
    await page.settle()
    assert "cannot be written" in " ".join(page.told)
    assert "there is no reply to export yet" in page.told
    assert len(page.told) == 3
