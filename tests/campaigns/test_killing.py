"""A chat that is killed in the middle of something, and the ledger that would notice a loss."""

import sqlite3

import pytest

from tests.campaigns.killing import Killer
from tests.campaigns.killing_ledger import Ledger
from tests.support.chat_folders import save_chat_folder


def test_a_killed_chat_loses_nothing_that_was_kept(tmp_path):
    killer = Killer(tmp_path / "home", str(save_chat_folder(tmp_path / "tiny")), seed=5)
    for moment in ("shown", "closing"):
        killer.kill_at(moment)
    killer.start_once_more()
    assert killer.ledger.faults == []
    assert len(killer.ledger.kept) > 3


KEPT = {"what": "kept", "turn": "Hello", "text": "Hi there", "chat": 1, "messages": [1, 2]}
OPEN = ({"what": "saying", "text": "And then?"}, {"what": "shown", "text": "Then we"})


@pytest.fixture
def folder(tmp_path):
    """A store with a kept turn, its reply, another turn and half a reply; a settings file."""
    with sqlite3.connect(tmp_path / "chats.sqlite3") as store:
        store.executescript(
            """CREATE TABLE chat (id, title, deleted);
            CREATE TABLE message (id, chat, parent, role, state, text);
            CREATE TABLE piece (message, number, text);
            INSERT INTO chat VALUES (1, 'Hello', NULL);
            INSERT INTO message VALUES (1, 1, NULL, 'user', 'finished', 'Hello');
            INSERT INTO message VALUES (2, 1, 1, 'assistant', 'finished', 'Hi there');
            INSERT INTO message VALUES (3, 1, 2, 'user', 'finished', 'And then?');
            INSERT INTO message VALUES (4, 1, 3, 'assistant', 'partial', 'Then');
            INSERT INTO piece VALUES (4, 1, ' w');"""
        )
    (tmp_path / "settings.toml").write_text("frame_rate = 20\n")
    return tmp_path


def ledger(*lines):
    told = Ledger()
    for line in ({**KEPT, "reason": "stop"}, *OPEN, *lines):
        told.take(line)
    return told


def test_what_is_there_as_it_was_told_is_no_fault(folder):
    told = ledger({"what": "set", "name": "frame_rate", "value": 20})
    told.check(folder)
    assert told.faults == []
    assert told.lost == [1]  # the "e" of "Then we"


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM message WHERE id = 1",
        "UPDATE message SET text = 'Hi' WHERE id = 2",
        "UPDATE message SET state = 'partial' WHERE id = 2",
        "UPDATE message SET state = 'finished' WHERE id = 4",
        "UPDATE message SET text = 'Now' WHERE id = 4",
        "UPDATE message SET text = 'And' WHERE id = 3",
        "UPDATE chat SET deleted = 1.0",
        "UPDATE chat SET title = 'chat 2'",
    ],
)
def test_what_is_missing_or_changed_is_a_fault(folder, damage):
    told = ledger(
        {"what": "undeleted", "chat": 1}, {"what": "renamed", "chat": 1, "title": "Hello"}
    )
    with sqlite3.connect(folder / "chats.sqlite3") as store:
        store.execute(damage)
    told.check(folder)
    assert told.faults


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("settings.toml", "frame_rate = 19"),
        ("settings.toml", "frame_ra"),
        ("measured.json", '{"half'),
        ("learned/1.safetensors", "half"),
        ("traces/1.jsonl", '{"half\n{}\n'),
    ],
)
def test_a_file_that_is_not_whole_is_a_fault(folder, name, content):
    told = ledger({"what": "set", "name": "frame_rate", "value": 20})
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    told.check(folder)
    assert told.faults


def test_a_recording_may_end_in_half_a_line_and_hold_any_line_separator(folder):
    (folder / "traces").mkdir()
    (folder / "traces/1.jsonl").write_text('{"text": "a\x85b\u2028c"}\n{"half', encoding="utf-8")
    told = ledger()
    told.check(folder)
    assert told.faults == []
