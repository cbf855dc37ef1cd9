"""`/export`: the file it makes, the name it takes, and how it says no."""

import os
import subprocess
import sys

import pytest

from mlxspec.trace.events import TurnStarted
from mlxspec_app.conversation.fold import fold
from mlxspec_app.export.filing import FORMATS, encoded, file_away, read_order, stem_of
from mlxspec_app.export.recording import Recording, chat_title
from tests.support.app_driver import chat, replay
from tests.traces import make_fake


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "path", "replaces"),
    [
        ("html", "html", None, False),
        ("svg my picture.svg", "svg", "my picture.svg", False),
        ("md a.md --force", "md", "a.md", True),
        ("csv a--force", "csv", "a--force", False),
        ("csv --force", "csv", None, True),
    ],
)
def test_reads_an_order(text, name, path, replaces):
    order = read_order(text)
    assert order.format is FORMATS[name]
    assert (order.path and str(order.path), order.replaces) == (path, replaces)


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="cannot export as 'pdf'; choose from html, svg"):
        read_order("pdf a.pdf")


def test_a_name_that_is_taken_is_not_taken_again(folder):
    for expected in ("our-sea.md", "our-sea-2.md", "our-sea-3.md"):
        assert str(file_away(read_order("md"), make_fake.chat(), "Our  SEA!")[0]) == expected
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    ("title", "stem"),
    [
        ("Was ist Größe?", "was-ist-größe"),
        ("../../etc/passwd", "etc-passwd"),
        ("?!", "chat"),
        ("word " * 20, "word-word-word-word-word-word-word-word"),
        ("x" * 90, "x" * 40),
    ],
)
def test_a_file_is_named_after_the_title(title, stem):
    assert stem_of(title) == stem


@pytest.mark.parametrize("name", ["svg", "html", "cast", "animation"])
def test_the_title_is_that_of_the_chat_and_not_of_the_file(name, folder):
    path, _ = file_away(read_order(f"{name} some.file"), make_fake.chat(), "Our sea")
    text = path.read_text(encoding="utf-8")
    assert "Our sea" in text
    assert "some" not in text.split("</title>")[0].split("<title>")[-1][:20]


def test_a_trace_has_the_title_of_its_first_message():
    events = [TurnStarted("system", "be brief"), TurnStarted("user", "\n  Why   so?\nmore")]
    assert (chat_title(events), chat_title([])) == ("Why so?", "")


def test_markdown_comes_with_figures_or_without(folder):
    recording = Recording.of("t", make_fake.chat())
    with_figures, bare = (FORMATS[name].render(recording) for name in ("md", "text"))
    assert "| figure | value |" in with_figures
    assert "|" not in bare
    assert recording.replies[0].text.strip() in bare


def test_a_file_that_is_there_is_replaced_where_the_order_says_so(folder):
    mine = folder / "mine.md"
    mine.write_text("mine")
    _, size = file_away(read_order("md mine.md --force"), make_fake.chat())
    assert mine.read_text().startswith("## You")
    assert size == mine.stat().st_size


ON_A_FULL_DISK = """
import resource, sys
from tests.traces import make_fake
from mlxspec_app.export.filing import file_away, read_order
events = list(make_fake.chat())
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for order in ("md new.md", "md mine.md --force"):
    try:
        file_away(read_order(order), events)
    except OSError as error:
        print(error.filename)
"""


def test_a_full_disk_costs_no_file_that_was_there(folder):
    (folder / "mine.md").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["new.md", "mine.md"]
    assert [path.name for path in folder.iterdir()] == ["mine.md"]
    assert (folder / "mine.md").read_text() == "mine"


def test_a_file_in_the_home_folder_can_be_named(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert file_away(read_order("md ~/a.md"), make_fake.chat())[0] == folder / "a.md"


def test_a_lone_surrogate_is_written_out():
    assert encoded("a\ud800") == b"a\\ud800"


async def test_what_cannot_be_written_is_said_and_a_file_that_is_there_is_kept(folder):
    (folder / "mine.md").write_text("mine")
    async with chat() as driver:
        for line, words in (
            ("/export", "there is no reply to export yet"),
            ("/export md mine.md", "mine.md already exists: name another file, or add --force"),
            ("/export md mine.md/chat.md", "cannot be written"),
        ):
            await order(driver, line)
            assert words in notices(driver)
            await driver.say("hello")
    assert [path.name for path in folder.iterdir()] == ["mine.md"]
    assert (folder / "mine.md").read_text() == "mine"


async def test_a_chat_is_written_in_every_format_and_the_place_named(folder):
    async with chat() as driver:
        await driver.say("hello")
        await order(driver, "/export")  # the page
        assert "other formats: /export svg, animation, cast, md, text, csv" in notices(driver)
        assert [path.suffix for path in folder.iterdir()] == [".html"]
        for name, made in FORMATS.items():
            await order(driver, f"/export {name} {name}{made.suffix}")
            assert f"{name}{made.suffix}" in notices(driver)
            assert (folder / f"{name}{made.suffix}").stat().st_size > 300
        assert driver.screen.state.reply.text.strip() in (folder / "md.md").read_text()


async def test_a_replay_is_written_as_far_as_it_was_shown_when_that_was_asked_for(folder):
    events = make_fake.chat()
    async with replay(events) as driver:
        await driver.wait(1000)
        driver.screen.enter("/export md chat.md")
        driver.screen.state.messages.clear()
        await driver.app.workers.wait_for_complete()
    expected = FORMATS["md"].render(Recording("", (), tuple(fold(events).messages)))
    assert (folder / "chat.md").read_text() == expected


async def order(driver, line):
    driver.screen.enter(line)
    await driver.app.workers.wait_for_complete()
    await driver.settle()


def notices(driver):
    return " ".join(notice.message for notice in driver.app._notifications)
