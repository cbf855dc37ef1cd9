"""The app starts, replays and answers from a recording with no MLX installed."""

import subprocess
import sys

from tests.support.paths import ROOT

PROGRAM = """
import asyncio, importlib, math, pkgutil, sys

from importlib.machinery import PathFinder

HIDDEN = ("mlx", "mlx_lm", "numpy", "transformers", "tokenizers", "safetensors")

class WithoutMlx:
    def find_spec(self, name, path=None, target=None):
        found = None if name.split(".")[0] in HIDDEN else PathFinder.find_spec(name, path, target)
        return found

sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder] + [WithoutMlx()]
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


def test_runs_without_mlx():
    path = ":".join(str(ROOT / folder) for folder in (".", "app", "tests"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "TERM": "xterm-256color", "PATH": ""},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "one of them is empty" in done.stdout
    assert "verifying six tokens" in done.stdout
