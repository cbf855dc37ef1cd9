"""What starts where packages are missing: the app without MLX, the library without the app."""

import subprocess
import sys

from tests.support.chat_folders import save_chat_folder
from tests.support.paths import ROOT

HIDE = """
import importlib, importlib.util, pkgutil, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
assert not any(map(importlib.util.find_spec, HIDDEN))
"""
APP = """
import asyncio
import mlxspec_app
for module in pkgutil.walk_packages(mlxspec_app.__path__, "mlxspec_app."):
    importlib.import_module(module.name)

from tests.support.app_driver import replay, chat
from tests.support.paths import TRACES
from mlxspec.trace.file import read_trace

async def main():
    async with replay(read_trace(TRACES / "chat.jsonl")) as driver:
        await driver.wait(100)
        for _ in range(100):  # on a busy machine the layout takes a while
            if "one of them is empty" in driver.shown:
                break
            await driver.settle()
        print(driver.shown)
    async with chat(read_trace(TRACES / "tree.jsonl")) as driver:
        await driver.say("hello")
        print(driver.screen.state.reply.text)

asyncio.run(main())
assert not [name for name in sys.modules if name.split(".")[0] in HIDDEN]
"""
LIBRARY = """
import mlxspec

engine = mlxspec.load(sys.argv[1], drafter="suffix")
params = mlxspec.GenerationParams(max_tokens=6)
print("reply:", ascii("".join(mlxspec.stream_text(engine, "one two one two", params))))
chat = mlxspec.Conversation(engine)
print("turn:", sum(1 for _ in chat.reply("hello", params)) > 0)
"""


def run(hidden, program, *arguments, **how):
    """What a program prints where these packages are not installed."""
    code = f"HIDDEN = {hidden!r}{HIDE}{program}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_app_runs_without_mlx():
    path = ":".join(str(ROOT / folder) for folder in (".", "app", "tests"))
    env = {"PYTHONPATH": path, "TERM": "xterm-256color", "PATH": ""}
    hidden = ("mlx", "mlx_lm", "numpy", "transformers", "tokenizers", "safetensors")
    shown = run(hidden, APP, env=env)
    assert "one of them is empty" in shown
    assert "verifying six tokens" in shown


def test_load_and_a_reply_need_neither_textual_nor_tomlkit_nor_mlx_lm(tmp_path):
    save_chat_folder(tmp_path)
    reply, turn = run(("textual", "tomlkit", "mlx_lm"), LIBRARY, tmp_path, cwd=ROOT).splitlines()
    assert reply.removeprefix("reply: ") != "''"
    assert turn == "turn: True"
