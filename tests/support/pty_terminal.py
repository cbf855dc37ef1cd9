"""A terminal for tests: a program on a real pty, and the screen of an emulator."""

import io
import os
import re
import sys
import termios
import time
from contextlib import suppress
from itertools import groupby

import pexpect
import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PATIENCE_S = 30
_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_RGB = re.compile("[0-9a-f]{6}")
_ON_AT_REST = {b"7", b"25"}  # wrapping and the cursor; other modes are off in a terminal at rest


class Terminal:
    """Runs a program and reads what it draws.

    Attributes:
        written: All bytes that the program wrote.
    """

    def __init__(self, argv, *, columns=100, rows=30, env=None):
        self._emulator = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._emulator)
        self.written = b""
        settings = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
        for name in ("COLUMNS", "LINES"):  # they would override the size of the terminal
            settings.pop(name, None)
        self._child = pexpect.spawn(
            argv[0],
            argv[1:],
            env=settings | (env or {}),
            dimensions=(rows, columns),
            timeout=PATIENCE_S,
        )
        self._at_first = self._attributes()

    @property
    def shown(self):
        """The characters on the screen, row by row."""
        return "\n".join(self._emulator.display)

    def picture(self, title):
        """Return the screen in its colours, as SVG; the 16 that a terminal may choose are left."""
        screen = self._emulator
        console = Console(record=True, width=screen.columns, file=io.StringIO())
        for row in range(screen.lines):
            cells = (screen.buffer[row][column] for column in range(screen.columns))
            runs = groupby(cells, key=lambda cell: (cell.fg, cell.bg))
            styled = [("".join(cell.data for cell in run), _style(*look)) for look, run in runs]
            console.print(Text.assemble(*styled), no_wrap=True)
        return console.export_svg(title=title)

    @property
    def pid(self):
        return self._child.pid

    def press(self, keys):
        self._child.send(keys)

    def resize(self, columns, rows):
        self._child.setwinsize(rows, columns)
        self._emulator.resize(rows, columns)

    def wait_for(self, text):
        """Read until a text is on the screen."""
        self.wait_until(lambda: text in self.shown, f"{text!r} never appeared")

    def wait_for_end(self):
        """Read until the program ended; return its exit code, negative for a signal."""
        self.wait_until(lambda: not self._child.isalive(), "the program did not end")
        self._child.close()
        status = self._child.signalstatus
        return self._child.exitstatus if status is None else -status

    def close(self):
        """End the program by force, if it still runs."""
        self._child.close(force=True)

    @property
    def modes_left_on(self):
        """Terminal modes that the program changed and did not restore."""
        last = {}
        for numbers, switch in _MODE.findall(self.written):
            for number in numbers.split(b";"):
                last[number] = switch == b"h"
        return {mode for mode, is_on in last.items() if is_on != (mode in _ON_AT_REST)}

    @property
    def is_as_before(self):
        """Whether the line discipline is restored: echo, lines, signals."""
        return self._attributes_at_end == self._at_first

    def wait_until(self, condition, complaint):
        """Read until a condition holds; after too long, fail and show the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._read()
            if condition():
                return
        raise AssertionError(f"{complaint}; the screen shows\n{self.shown}")

    def _read(self):
        try:
            piece = self._child.read_nonblocking(1 << 16, timeout=0.05)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            time.sleep(0.01)
            return
        finally:
            with suppress(termios.error):  # macOS fails here after the program ended
                if not self._child.closed:
                    self._attributes_at_end = self._attributes()
        self.written += piece
        self._stream.feed(piece)

    def _attributes(self):
        return termios.tcgetattr(self._child.child_fd)


def _style(*colours):
    return Style.parse(" on ".join(f"#{it}" if _RGB.fullmatch(it) else "default" for it in colours))
