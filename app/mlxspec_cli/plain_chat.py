"""The chat of `mlxspec chat --plain`: reads a line, streams the reply as plain text.

Standard output has only the replies, broken between words on a terminal and exact in a pipe. In a
pipe the exit code is 1 if a reply failed, and 130 after Ctrl-C.
"""

import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from shutil import get_terminal_size
from types import FrameType

from mlxspec import api
from mlxspec.chat.conversation import Conversation
from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.params.table import ADJUSTABLE
from mlxspec.trace import events
from mlxspec.trace.events import Event, text_of
from mlxspec.trace.file import TraceWriter
from mlxspec_app.sessions.session import ReplySettings
from mlxspec_app.text.word_wrap import WordWrapper
from mlxspec_cli.arguments import given_words, options
from mlxspec_cli.output import harmless, say, tell_drafter_failure, tell_end

_HELP = """\
Type a message and press Enter. Ctrl-C stops a reply, Ctrl-D ends the chat.
/retry  retry the last reply                 /new   start a new chat
/help   this list                          /quit  end the chat
/verify write the last reply again by the model alone, and compare
/temp 0.7, likewise /top_p, /top_k, /min_p, /seed, /k, /max: settings from the next reply on
/exact_seed on, the text of plain sampling with the same seed, for every drafter; or off
/think 500, at most 500 reasoning tokens; /think off for none, on for any number
/stop_repeats off, let a reply repeat itself up to its limit; or on
/template NAME=VALUE, a variable of the chat template, such as enable_thinking=false"""


def run_plain(args: Namespace, params: GenerationParams) -> int:
    """Chat until the input ends."""
    prepared = api.prepare(args.model or None, options(args), say=say)
    settings = ReplySettings(params, given_words(args))
    settings.suggest(prepared.sampling)
    chat = _PlainChat(Conversation(prepared.engine, args.system, say=say), settings)
    name, choice = harmless(prepared.engine.name), prepared.choice
    _tell(f"{name}, drafter {choice.drafter}, {choice.reason}. /help for help.")
    with ExitStack() as stack:
        if args.trace:
            chat.trace = stack.enter_context(TraceWriter(args.trace))
        while chat.turn():
            pass
    return 1 if chat.has_failed and not sys.stdin.isatty() else 0


def _tell(line: str = "", end: str = "\n") -> None:
    """Print to standard error, which gets everything but replies."""
    print(line, end=end, file=sys.stderr, flush=True)


class _PlainChat:
    def __init__(self, conversation: Conversation, settings: ReplySettings) -> None:
        self.trace: TraceWriter | None = None
        self.has_failed = self._stop = False
        is_terminal = sys.stdout.isatty()
        self._wrapper = WordWrapper(get_terminal_size().columns) if is_terminal else None
        self._conversation, self._settings = conversation, settings

    def turn(self) -> bool:
        """Read one line and answer it; return False at the end of the chat."""
        try:
            line = _read_line().strip()
        except EOFError:
            return False
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            return False
        match line:
            case "":
                pass
            case "/quit" | "/exit":
                return False
            case "/help":
                _tell(_HELP)
            case "/new":
                self._conversation.reset()
                _tell("This is a new chat.")
            case "/verify":
                self._verify()
            case "/retry":
                self._answer(self._conversation.regenerate)
            case _ if line.startswith("/") and line[1:].partition(" ")[0] in ADJUSTABLE:
                self._adjust(line)
            case _ if line.startswith("/") and " " not in line:
                _tell(f"{harmless(line)} is not a command; /help lists them.")
            case _:
                self._answer(partial(self._conversation.reply, line))
        return True

    def _adjust(self, line: str) -> None:
        name, _, text = line[1:].partition(" ")
        if not text.strip():
            _tell(f"{name} is {self._settings.adjustable()[name]}")
            return
        try:
            self._settings.adjust(name, text.strip())
        except ValueError as error:
            say(str(error))

    def _verify(self) -> None:
        with self._stoppable():
            _tell(self._conversation.prove(should_stop=lambda: self._stop).describe())

    def _answer(self, ask: Callable[..., Iterator[Event]]) -> None:
        """Print a reply; an error ends the reply, not the chat."""
        with self._stoppable():
            for event in ask(self._settings.params, should_stop=lambda: self._stop):
                self._show(event)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Let Ctrl-C stop the block, and print its errors as one line."""
        self._stop = False
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        except (MlxspecError, ValueError) as error:
            self.has_failed = True
            self._write_rest()
            say(str(error))
        finally:
            signal.signal(signal.SIGINT, before)
        if self._stop and not sys.stdin.isatty():
            raise KeyboardInterrupt  # a pipe has no user to continue

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._stop = True  # the engine checks this between rounds, in a consistent state

    def _write(self, text: str) -> None:
        shown = text if self._wrapper is None else self._wrapper.add(harmless(text))
        print(shown, end="", flush=True)

    def _write_rest(self) -> None:
        if self._wrapper is not None:
            print(self._wrapper.end(), end="", flush=True)

    def _show(self, event: Event) -> None:
        if self.trace:
            self.trace.write(event)
        match event:
            case events.GenerationStarted():
                self._drafter = event.drafter
            case events.DraftVerified() | events.PlainDecoded():
                self._write(text_of(event))
            case events.DrafterFailed():
                tell_drafter_failure(event)
            case events.GenerationFinished():
                self._write(event.text)
                self._write_rest()
                print()
                tell_end(event, self._drafter)


def _read_line() -> str:
    """Read a line, with a prompt for a person; standard output gets it only if a terminal."""
    is_asked = sys.stdin.isatty()
    if is_asked and sys.stdout.isatty():
        return input("\nyou> ")  # through readline, which needs the prompt for its cursor
    if is_asked:
        _tell("\nyou> ", end="")
    return input()
