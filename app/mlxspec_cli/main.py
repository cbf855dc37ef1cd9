"""The command line: from arguments to a command, and from its errors to an exit code.

Exit codes: 0 for success, 2 for a bad argument, 1 for anything else that went wrong, 130 after
Ctrl-C. `--debug` shows the traceback of an error that is otherwise one line.
"""

import argparse
import errno
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from mlxspec.device import backend
from mlxspec.errors import MlxspecError
from mlxspec_cli.output import mend_streams, say
from mlxspec_cli.parser import build_parser

_WITHOUT_MLX = ("replay", "race", "export", "doctor", "completion", "man")
_CHECKS_ITSELF = ("chat",)  # its app opens before MLX is there
_DRAWN = ("chat", "replay", "race")  # they collect garbage again once they run


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    mend_streams()
    args = None
    try:
        with _flushed_output():
            args = build_parser().parse_args(argv)
            return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0  # the reader has gone
    except (ValueError, MlxspecError, OSError, RuntimeError, MemoryError) as error:
        if args is not None and args.debug:
            raise
        say(_told(error))
        return 2 if isinstance(error, ValueError) else 1


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Write what was printed while a failure can still be told; `--help` exits from the block."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # Keep the interpreter from flushing into it once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


def _run(args: argparse.Namespace) -> int:
    if args.command not in (*_WITHOUT_MLX, *_CHECKS_ITSELF):
        backend.check()
    if args.command in _DRAWN:
        gc.disable()  # what is imported stays: walking it costs a tenth of the start
    # Imported late, for the same reason.
    code: int = import_module(f"mlxspec_cli.commands.{args.command}").run(args)
    return code


def _told(error: Exception) -> str:
    """Return an error in words; one of a full disk says what to do."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        place = error.filename or "the output"
        return f"{place} cannot be written: {error.strerror}; make room, or write elsewhere"
    return str(error) or type(error).__name__
