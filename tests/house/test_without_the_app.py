"""Python's front door opens where what only the app and other loaders need is not installed."""

import subprocess
import sys

from tests.support.chat_folders import save_chat_folder
from tests.support.paths import ROOT

PROGRAM = """
import importlib.util, sys
from importlib.machinery import PathFinder

HIDDEN = ("textual", "tomlkit", "mlx_lm")

class WithoutTheApp(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTheApp
assert not any(map(importlib.util.find_spec, HIDDEN))

import mlxspec

engine = mlxspec.load(sys.argv[1], drafter="suffix")
params = mlxspec.GenerationParams(max_tokens=6)
print("reply:", ascii("".join(mlxspec.stream_text(engine, "one two one two", params))))
chat = mlxspec.Conversation(engine)
print("turn:", sum(1 for _ in chat.reply("hello", params)) > 0)
"""


def test_load_and_a_reply_need_neither_textual_nor_tomlkit_nor_mlx_lm(tmp_path):
    save_chat_folder(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    reply, turn = done.stdout.splitlines()
    assert reply.removeprefix("reply: ") != "''"
    assert turn == "turn: True"
