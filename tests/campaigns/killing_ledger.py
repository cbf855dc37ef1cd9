"""What a killed chat must have left on the disk, by what it told while it ran.

The disk is read with SQLite, TOML, JSON and safetensors alone, not with the code that wrote it.
"""

import json
import sqlite3
import tomllib
from contextlib import closing
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

_TEXT = """SELECT message.id, role, state, text || coalesce((SELECT group_concat(text, '') FROM (
    SELECT text FROM piece WHERE piece.message = message.id ORDER BY number)), ''), chat
    FROM message"""
_TROUBLE = ("damaged", "warning", "cannot", "lost", "broke")  # in notices: something is amiss


class Row(NamedTuple):
    """A message as the database has it."""

    role: str
    state: str
    text: str
    chat: int


class Ledger:
    """What was told, over any number of runs, and what is wrong, in words."""

    def __init__(self):
        self.kept = {}  # messages that were told to be in the store, by number
        self.titles = {}  # those that each chat may have
        self.hidden = {}  # whether a chat is deleted; None where both may be
        self.settings = {}  # values that each of them may have
        self.turn = None  # what was said and is not known to be kept
        self.shown = ""  # the reply to it, as far as it was on the screen
        self.is_ended = False  # whether the whole of it was
        self.faults = []
        self.lost = []  # characters of broken off replies that were shown and not kept

    def take(self, line):
        """Note what a run told."""
        match line:
            case {"what": "saying" | "again", "text": text}:
                self.turn, self.shown, self.is_ended = text, "", False
            case {"what": "shown", "text": text}:
                self.shown = text
            case {"what": "finished", "text": text}:
                self.shown, self.is_ended = text, True
            case {"what": "kept", "messages": [turn, reply], "chat": chat, "reason": reason}:
                state = "partial" if reason == "cancelled" else "finished"
                self.kept[turn] = Row("user", "finished", line["turn"], chat)
                self.kept[reply] = Row("assistant", state, line["text"], chat)
                self.turn = None
            case {"what": "renaming", "chat": chat, "title": title}:
                self.titles.setdefault(chat, {None}).add(title)
            case {"what": "renamed", "chat": chat, "title": title}:
                self.titles[chat] = {title}
            case {"what": "deleting" | "undeleting", "chat": chat}:
                self.hidden[chat] = None
            case {"what": "deleted" | "undeleted" as what, "chat": chat}:
                self.hidden[chat] = what == "deleted"
            case {"what": "setting", "name": name, "value": value}:
                self.settings.setdefault(name, {None}).add(value)
            case {"what": "set", "name": name, "value": value}:
                self.settings[name] = {value}
            case {"what": "notice", "text": text} if any(word in text for word in _TROUBLE):
                self.faults.append(f"at the next start: {text}")

    def check(self, folder):
        """Compare the disk with what was told; what is on it is what counts from then on."""
        store = folder / "chats.sqlite3"
        if store.exists() and store.stat().st_size:
            with closing(sqlite3.connect(store)) as connection:
                self._check_store(connection)
        elif self.kept:
            self.faults.append("there is no store any more")
        self._check_settings(folder / "settings.toml")
        self._check_others(folder)
        self.turn = None

    def _check_store(self, connection):
        for pragma in ("integrity_check", "foreign_key_check"):
            told = connection.execute(f"PRAGMA {pragma}").fetchall()
            if told not in ([("ok",)], []):
                self.faults.append(f"{pragma}: {told}")
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'message'").fetchone():
            self._expect(not self.kept, "the store lost its tables")
            return
        rows = {number: Row(*rest) for number, *rest in connection.execute(_TEXT)}
        self._check_chats(dict(connection.execute("SELECT id, deleted IS NOT NULL FROM chat")))
        self._check_kept(rows)
        self._check_open(rows, dict(connection.execute("SELECT id, parent FROM message")))
        titles = dict(connection.execute("SELECT id, title FROM chat"))
        for chat, allowed in self.titles.items():
            if chat in titles and None not in allowed:  # None: it had one that nobody told
                self._expect(titles[chat] in allowed, f"chat {chat} is called {titles[chat]!r}")
        self.titles = {chat: {titles[chat]} for chat in self.titles if chat in titles}

    def _check_chats(self, hidden):
        for chat, expected in self.hidden.items():
            is_hidden = hidden.get(chat, True)
            self._expect(
                expected is None or is_hidden == expected, f"chat {chat}: deleted is {is_hidden}"
            )
            self.hidden[chat] = bool(is_hidden)
        gone = {chat for chat in self.hidden if chat not in hidden}  # the end of a session did it
        self.kept = {number: row for number, row in self.kept.items() if row.chat not in gone}

    def _check_kept(self, rows):
        for number, row in self.kept.items():
            got = rows.get(number)
            self._expect(got == row, f"message {number} is {got}, was {row}")

    def _check_open(self, rows, parents):
        """Check the turn that was being answered, and its reply as far as it was shown."""
        if self.turn is None:
            return
        torn = [row for row in rows.values() if row.role == "user" and row.text != self.turn]
        is_torn = any(self.turn.startswith(row.text) for row in torn)
        self._expect(not is_torn, f"the turn {self.turn!r} is there in part")
        replies = [
            row
            for number, row in sorted(rows.items())
            if number not in self.kept
            and row.role == "assistant"
            and rows[parents[number]].text == self.turn
        ]
        if not replies:  # it had not begun, or the store had not heard of it
            self.lost += [len(self.shown)] if self.shown else []
            return
        reply = replies[-1]
        is_whole = reply.state == "finished"
        self._expect(self.shown.startswith(reply.text), f"a reply became {reply.text!r}")
        self._expect(self.is_ended or not is_whole, "a broken off reply is marked as finished")
        self._expect(not is_whole or reply.text == self.shown, "a finished reply is not whole")
        self.lost.append(len(self.shown) - len(reply.text))

    def _check_settings(self, path):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError as error:
            self.faults.append(f"the settings are broken: {error}")
            return
        for name, allowed in self.settings.items():
            value = table
            for part in name.split("."):
                value = value.get(part, {})
            value = None if value == {} else value
            self._expect(value in allowed, f"{name} is {value}, was {allowed}")
            self.settings[name] = {value}

    def _check_others(self, folder):
        costs = folder / "measured.json"
        try:
            json.loads(costs.read_text(encoding="utf-8")) if costs.exists() else None
        except ValueError as error:
            self.faults.append(f"the kept costs are broken: {error}")
        for path in folder.glob("learned/*.safetensors"):
            try:
                with safe_open(path, framework="np") as file:
                    for name in file.keys():  # noqa: SIM118 - it is no dict
                        file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                self.faults.append(f"the learned table is broken: {error}")
        for path in folder.glob("traces/*.jsonl"):
            *lines, _cut_off = path.read_text(encoding="utf-8").split("\n")
            try:
                [json.loads(line) for line in lines]  # a token's text may hold U+0085 or U+2028
            except ValueError as error:
                self.faults.append(f"a line of the recording {path.name} is broken: {error}")

    def _expect(self, is_so, complaint):
        if not is_so:
            self.faults.append(complaint)
