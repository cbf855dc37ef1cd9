"""Text files of other systems: a mark in front and other ends of lines change nothing."""

import io
import sys

import pytest

from mlxspec.bench.prompts import read_questions
from mlxspec.files import NotTextError, read_text
from mlxspec.loading.folder import read_json
from mlxspec.params import Grammar
from mlxspec.trace.events import TurnStarted
from mlxspec.trace.file import event_to_json, read_trace
from mlxspec.train.data.prompts import read_prompts
from mlxspec.train.recipe import load_recipe
from mlxspec_app.settings.file import change_settings, read_settings
from mlxspec_app.text.mentions import with_files
from mlxspec_app.user.editor import edit_text
from mlxspec_cli.arguments import read_file
from mlxspec_cli.commands.generate import _read_prompt
from mlxspec_cli.output import mend_streams
from mlxspec_cli.parser import build_parser
from tests.support.pairwise import each_value

MARK = b"\xef\xbb\xbf"


def stdin_of(data, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="\n"))
    mend_streams()


def changed_settings(path):
    change_settings(path, {"frame_rate": 25})
    return read_settings(path)


def edited(path, monkeypatch):
    program = f"import shutil, sys; shutil.copy({str(path)!r}, sys.argv[1])"
    return edit_text("", {"EDITOR": f'{sys.executable} -c "{program}"'})


QUESTION = '{"question_id": 1, "category": "qa", "turns": ["é"]}\n'
READERS = {
    "prompt": ("x.txt", "one\ntwo é\n", lambda path: read_file(path, "prompt")),
    "schema": ("x.json", '{"type":\n "object"}', lambda path: Grammar.json_schema(path)),
    "mention": ("x.txt", "one\ntwo é\n", lambda path: with_files(f"@{path.name}", path.parent)),
    "settings": ("x.toml", '# mine\nink = "off"\n', read_settings),
    "changed settings": ("x.toml", '# mine\nink = "off"\n', changed_settings),
    "trace": (
        "x.jsonl",
        event_to_json(TurnStarted("user", "é")) + "\n",
        lambda path: list(read_trace(path)),
    ),
    "questions": ("x.jsonl", QUESTION, read_questions),
    "prompts": ("x.txt", "one\ntwo é\n", read_prompts),
    "turns": ("x.jsonl", '{"prompt": "é"}\n', read_prompts),
    "templates": ("x.toml", 'count = 1\ntemplates = [["a é"]]\n[words]\n', read_prompts),
    "recipe": ("x.toml", 'kind = "medusa"\ntokens = 5\n', load_recipe),
    "config": ("config.json", '{"model_type":\n "llama"}', read_json),
}


@each_value(end=[b"\n", b"\r\n"], name=READERS)
def test_a_file_says_the_same_with_a_mark_and_with_other_ends_of_lines(tmp_path, name, end):
    file, text, read = READERS[name]
    (tmp_path / "plain").mkdir()
    plain, marked = tmp_path / "plain" / file, tmp_path / file
    plain.write_text(text, encoding="utf-8")
    marked.write_bytes(MARK + text.encode().replace(b"\n", end))
    assert read(marked) == read(plain)


def test_a_pipe_gives_the_text_of_the_file(tmp_path, monkeypatch):
    data = MARK + b"one\r\ntwo \xc3\xa9\r\n"
    (tmp_path / "x.txt").write_bytes(data)
    stdin_of(data, monkeypatch)
    piped = _read_prompt(build_parser().parse_args(["generate"]))
    assert piped == read_text(tmp_path / "x.txt") == "one\ntwo é\n"


def test_the_first_line_of_a_plain_chat_has_no_mark(monkeypatch):
    stdin_of(MARK + b"/quit\n", monkeypatch)
    assert input() == "/quit"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"caf\xe9 is", "not UTF-8 text: its character 4 is the byte 0xe9; give it as UTF-8"),
        (MARK + "é".encode() + b"\xff", "its character 2 is the byte 0xff"),
        (b"a\0b", "its character 2 is the byte zero"),
        ("hi".encode("utf-16"), "not UTF-8 text but UTF-16: give it as UTF-8"),
        ("hi".encode("utf-16-be"), "its character 1 is the byte zero"),
        (b"\xed\xa0\xbd", "its character 1 is the byte 0xed"),
    ],
)
def test_bytes_that_are_no_text_are_refused_by_file_and_by_pipe(
    data, reason, tmp_path, monkeypatch
):
    (tmp_path / "x.txt").write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        read_file(tmp_path / "x.txt", "prompt")
    stdin_of(data, monkeypatch)
    with pytest.raises(ValueError, match=reason):
        _read_prompt(build_parser().parse_args(["generate"]))


def test_a_file_that_is_too_large_is_not_cut(tmp_path):
    (tmp_path / "x.txt").write_text("é" * 1000)
    assert read_text(tmp_path / "x.txt", 2000) == "é" * 1000
    with pytest.raises(NotTextError, match="larger than 1 kB: give a smaller one"):
        read_text(tmp_path / "x.txt", 1999)


def test_what_an_editor_wrote_in_another_encoding_is_not_lost(tmp_path, monkeypatch):
    (tmp_path / "x.txt").write_bytes(MARK + b"caf\xe9\r\nmore\n")
    assert edited(tmp_path / "x.txt", monkeypatch) == "caf\ufffd\nmore"
