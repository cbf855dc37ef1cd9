"""Record the traces beside this file anew: `python assets/record.py [NAME ...]`.

Each is a chat in the app with the default model, on a terminal that nobody sees: what is said is
typed, and between replies the app measures what forwards cost here. Without a name all are made,
which takes some minutes. The figures of each reply are printed: they show whether the machine had
other work. `make_screenshot.py` draws pictures from the traces.
"""

import os
import pty
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.figures import reply_figures
from mlxspec_app.export.recording import Recording

ASSETS = Path(__file__).parent
PATIENCE_S = 180.0
CTRL_C = b"\x03"
PROMPT = b"Message"

SEA = (
    "Write a short paragraph about the sea.",
    "Write a Python function that adds two numbers.",
    "Write the paragraph about the sea again, but replace the word sea with ocean.",
)
CODE = (
    "Write a Python class Stack with the methods push, pop, peek and is_empty, then show how to "
    "use it.",
)
STORY = ("Tell me a short story about a fox who learns to read.",)
BREAD = ("Explain step by step how bread is made, from the flour to the oven.",)

CHATS = {  # name -> what is said, and the options of `mlxspec chat`
    "chat": (SEA, ["--drafter", "pool"]),
    "code": (CODE, ["--drafter", "suffix,table,eagle3"]),
    "code-plain": (CODE, ["--drafter", "none"]),
    "sampling": (
        STORY,
        ["--drafter", "suffix,table,medusa", "--temp", "0.8", "--max-tokens", "160"],
    ),
    "rotating": (BREAD, ["--drafter", "pool", "--max-kv-size", "128", "--max-tokens", "320"]),
}


def record(name: str) -> None:
    """Chat as the table says and put the trace in place of the one before."""
    said, options = CHATS[name]
    with TemporaryDirectory(dir=ASSETS) as folder:
        trace = Path(folder) / "trace.jsonl"
        (Path(folder) / "chats.sqlite3").touch()  # nobody new, who would be introduced first
        command = ["chat", *options, "--seed", "1", "--trace", str(trace), "--data-dir", folder]
        terminal = _start(command)
        for number, text in enumerate(said, start=1):
            os.write(terminal, text.encode() + b"\r")
            _wait(trace, GenerationFinished, number)
        os.write(terminal, CTRL_C)
        os.wait()
        trace.replace(ASSETS / f"{name}.jsonl")
    for reply in Recording.read(ASSETS / f"{name}.jsonl").replies:
        print(name, *(part.text for part in reply_figures(reply)), sep=" · ", flush=True)


def _start(arguments: list[str]) -> int:
    """Start mlxspec on a terminal, and return that once its prompt is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "mlxspec", *arguments])
    termios.tcsetwinsize(terminal, (32, 100))
    drawn = b""
    while PROMPT not in drawn:
        drawn += os.read(terminal, 65536)
    threading.Thread(target=_read_away, args=(terminal,), daemon=True).start()
    return terminal


def _read_away(terminal: int) -> None:
    with suppress(OSError):  # the program has gone, and its side of the terminal with it
        while os.read(terminal, 65536):
            pass


def _wait(trace: Path, kind: type[Event], number: int) -> None:
    """Wait until a trace holds this many events of a kind."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        events: list[Event] = []
        with suppress(TraceError):  # not there yet
            events = list(read_trace(trace))
        if any(isinstance(event, GenerationFailed) for event in events):
            raise RuntimeError(f"the reply was cut off: {events[-1]}")
        if sum(isinstance(event, kind) for event in events) >= number:
            return
    raise RuntimeError(f"waited {PATIENCE_S:.0f} s in vain for {kind.__name__} in {trace}")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CHATS:
        record(wanted)
