"""Hostile files of the app and of the bench, for `fuzz.py`: settings, chats, questions."""

import json
import shutil
import sqlite3
from pathlib import Path
from random import Random

from textual.app import App

from mlxspec.bench.prompts import read_questions
from mlxspec.errors import MlxspecError
from mlxspec.train.data.prompts import read_prompts
from mlxspec_app.settings.file import SettingsError, change_settings, read_settings
from mlxspec_app.settings.keys.choices import all_bindings, usable_keys
from mlxspec_app.settings.rules import RULES
from mlxspec_app.store.database import open_for_writing
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.restore import restore
from mlxspec_app.store.writer import Writer
from tests.campaigns.fuzz_damage import damaged, damaged_json, hostile_value
from tests.support.question_file import save_questions
from tests.support.settings_files import FULL
from tests.support.store_files import exchange, messages_of, open_writer, say


class SettingsTarget:
    """Settings files: whatever they hold, there are settings after it, and they can be changed."""

    refusals = (SettingsError,)

    def __init__(self, folder: Path) -> None:
        self._keys = tuple(all_bindings())

    def make(self, draw: Random, folder: Path) -> str:
        path = folder / "settings.toml"
        if draw.random() < 0.3:
            what, data = damaged(FULL.encode(), draw)
            path.write_bytes(data)
            return what
        name = draw.choice([*RULES, *(f'keys."{key}"' for key in self._keys), *_NAMES])
        value = draw.choice(_TOML)
        lines = FULL.splitlines()
        line = f"{name} = {value}"
        place = draw.choice([0, 3, len(lines), draw.randrange(len(lines))])
        lines.insert(place, line)
        if draw.random() < 0.5:  # or in place of the line that is there
            del lines[place + 1 :][:1]
            lines = [old for old in lines if old is line or not old.startswith(name + " ")]
        path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
        return line[:80]

    def read(self, folder: Path) -> None:
        path = folder / "settings.toml"
        found = read_settings(path)
        chosen = usable_keys(found.settings.keys)
        App().set_keymap(chosen.keys)
        assert all(isinstance(notice, str) for notice in (*found.notices, *chosen.troubles))
        before = path.read_bytes()
        try:
            changes = {"ink": "off", "sampling.top_k": 3, "keys.chat.stop": "f7", "theme": None}
            change_settings(path, changes)
        except SettingsError:
            assert path.read_bytes() == before
            raise
        changed = read_settings(path).settings
        assert (changed.ink, changed.sampling["top_k"], changed.theme) == ("off", 3, "")
        assert changed.keys["chat.stop"] == "f7"


_NAMES = (
    *("keys", "sampling", "sampling.keys", "keys.chat", '"keys.chat.stop"', '"sampling.top_k"'),
    *('"a\\u0000b"', '""', "a.b.c.d", "keys.chat.stop.more", '"keys."', '"."', "sampling.top_k.x"),
    ".".join("a" * 3000),
)
_TOML = (
    *("true", "0", "-1", "1e400", "nan", "-inf", "99999999999999999999", "0x" + "f" * 5000),
    *('""', '"a"', '"\\u0000"', '"\\ud800"', "'ctrl+'", "'ctrl+ctrl+g'", "','", '"a,,b"', "'+'"),
    *('"' + "x" * 10_000 + '"', "[" * 5000, "[" * 100 + "]" * 100, "{}", "{a = 1}", "[1, 'a']"),
    *("1979-05-27T07:32:00Z", "07:32:00", "{a.b.c = 1}", "'escape'", "'ctrl+c'", "9" * 5000),
    *('"""\n"""', "'\\'", "0o17", "1_000", "1__0", "+nan", "-0.0", "5e-324", "'\x1b[2J'"),
)


class StoreTarget:
    """Stores of chats: damaged pages, and rows and tables that the schema would not allow."""

    refusals = (StoreError,)

    def __init__(self, folder: Path) -> None:
        self._sound = folder / "sound.sqlite3"
        writer = open_writer(self._sound)
        first = writer.new_chat("a chat", "be brief")
        say(writer, first, "hello there", "good day", "and now?", "nothing")
        second = writer.new_chat()
        say(writer, second, "日本語 hello")
        for text in ("x" * 3000, "y" * 9000):
            writer.add_message(second, None, "user", text)
        writer.close()
        connection = sqlite3.connect(self._sound)
        connection.execute("PRAGMA journal_mode = DELETE")  # one file, no companions
        connection.execute(
            "INSERT INTO generation VALUES (2, 'm', 'pool', '{\"device\": \"d\"}', '7', '{}', "
            "'stop', '', 'trace.jsonl')"
        )
        connection.commit()
        connection.close()
        assert list(exchange("a", "b"))

    def make(self, draw: Random, folder: Path) -> str:
        path = folder / "chats.sqlite3"
        shutil.copy(self._sound, path)
        if draw.random() < 0.5:
            what = _change_rows(path, draw)
        else:
            what, data = damaged(path.read_bytes(), draw)
            path.write_bytes(data)
        if draw.random() < 0.1:
            ending = draw.choice(["-wal", "-shm", "-journal"])
            path.with_name(path.name + ending).write_bytes(
                draw.randbytes(draw.choice([0, 32, 5000]))
            )
            what += f", {ending}"
        return what

    def read(self, folder: Path) -> None:
        said: list[str] = []
        connection = open_for_writing(folder / "chats.sqlite3", said.append)
        try:
            self._use(Writer(connection, lambda: 5_000.0), folder)
        finally:
            connection.close()

    def _use(self, writer: Writer, folder: Path) -> None:
        writer.overview()
        writer.search('hello "good day"')
        writer.recent_turns()
        for summary in writer.recent():
            writer.chat(summary.chat)
            restore(writer.path(summary.chat), folder / "traces")
            for message in messages_of(writer, summary.chat):
                writer.siblings(message.id)
        chat = writer.new_chat("new")
        last = writer.add_message(chat, None, "user", "still there?")
        writer.fork(last)
        writer.rename(chat, "renamed")
        writer.delete(chat)
        writer.purge()


_COLUMNS = {
    "chat": ("id", "title", "created", "updated", "system", "settings", "leaf", "deleted"),
    "message": ("id", "chat", "parent", "depth", "role", "state", "text", "created"),
    "generation": ("message", "target", "settings", "seed", "stats", "reason", "error", "trace"),
}
_VALUES = (
    *(None, 0, 1, 2, 3, -1, 2**63 - 1, -(2**63), 1.5, 1e300, float("inf"), "", "a", "7", "\0"),
    *("{}", "[]", "5", "null", "1e999", "[" * 900 + "]" * 900, '{"a": NaN}', "{", '"x"'),
    *(b"", b"\xff\xfe", b"{}", "9" * 5000, "../../../etc/passwd", "user", "assistant", "partial"),
    *('{"target": 5}', '{"peak_memory_gb": 1e999}', '{"accepted": [-1]}', '{"seed": 1e30}'),
    "CAST(x'ff41' AS TEXT)",
)
_SCHEMAS = (
    "DROP TABLE generation",
    "DROP TABLE piece",
    "DROP TABLE search",
    "DROP TABLE chat",
    "ALTER TABLE chat RENAME COLUMN title TO name",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 99",
    "PRAGMA user_version = -1",
    "PRAGMA application_id = 0",
    "PRAGMA encoding = 'UTF-16'",
)


def _change_rows(path: Path, draw: Random) -> str:
    connection = sqlite3.connect(path)
    connection.create_function("spaced", 1, lambda text: text)
    connection.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
    what = []
    for _ in range(draw.choice([1, 1, 2, 4])):
        table = draw.choice(list(_COLUMNS))
        column, value = draw.choice(_COLUMNS[table]), draw.choice(_VALUES)
        sql = f"UPDATE {table} SET {column} = ?{draw.choice(['', ' WHERE rowid = 2'])}"
        if draw.random() < 0.25:
            sql, value = draw.choice(_SCHEMAS), None
        what.append(f"{sql[:60]} {value!r:.30}")
        try:
            if value is None and "?" not in sql:
                connection.executescript(sql)
            elif isinstance(value, str) and value.startswith("CAST"):
                connection.execute(sql.replace("?", value))
            else:
                connection.execute(sql, (value,))
            connection.commit()
        except (sqlite3.Error, OverflowError):  # what SQLite itself does not take
            connection.rollback()
    connection.close()
    return ", ".join(what)


class PromptsTarget:
    """Files of questions, for the bench and for training."""

    refusals = (MlxspecError, ValueError)

    def __init__(self, folder: Path) -> None:
        self._lines = save_questions(folder).read_bytes().splitlines()

    def make(self, draw: Random, folder: Path) -> str:
        lines = list(self._lines)
        place = draw.randrange(len(lines))
        if draw.random() < 0.2:
            what, data = damaged(b"\n".join(lines), draw)
        else:
            if draw.random() < 0.2:
                content = json.loads(lines[place])
                content["turns"] = draw.choice(
                    [hostile_value(draw), ["a", "\ud800"], "abc", {"a": 1}]
                )
                what, lines[place] = f"turns {content['turns']!r:.40}", json.dumps(content).encode()
            else:
                what, lines[place] = damaged_json(lines[place], draw)
            data = b"\n".join(lines)
        (folder / "question.jsonl").write_bytes(data)
        return what

    def read(self, folder: Path) -> None:
        path = folder / "question.jsonl"
        errors = []
        for read, allowed in ((read_questions, ValueError), (read_prompts, MlxspecError)):
            try:
                found = read(path)
            except allowed as error:
                errors.append(error)
            else:
                _check_texts(found)
        if errors:
            raise errors[0]


def _check_texts(found) -> None:
    for question in found:
        turns = question if isinstance(question, list) else question.turns
        assert turns
        for turn in turns:
            turn.encode()  # a tokenizer cannot read a lone surrogate
        assert isinstance(question, list) or question.digest
