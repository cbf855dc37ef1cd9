"""The entry point: parses the arguments, runs a command, turns its errors into exit codes.

Exit codes: 0 for success, 2 for a bad argument, 1 for any other error, 130 after Ctrl-C.
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

_WITHOUT_MLX = ("replay", "race", "watch", "export", "doctor", "completion", "man")
_CHECKS_ITSELF = ("chat",)  # its app opens before MLX is imported
_DRAWN = ("chat", "replay", "race", "watch")  # these turn garbage collection on again when they run


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
        return 0  # the reader of a pipe has closed it: not an error
    except (ValueError, MlxspecError, OSError, RuntimeError, MemoryError) as error:
        if args is not None and args.debug:
            raise
        say(_error_text(error))
        return 2 if isinstance(error, ValueError) else 1


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Flush standard output while an error can still be caught; `--help` exits from the block."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # The interpreter flushes once more at exit: that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


def _run(args: argparse.Namespace) -> int:
    if args.command not in (*_WITHOUT_MLX, *_CHECKS_ITSELF):
        backend.check()
    if args.command in _DRAWN:
        gc.disable()  # imports leave no garbage: collections would cost a tenth of the startup time
    # Imported here, where garbage collection is off already.
    code: int = import_module(f"mlxspec_cli.commands.{args.command}").run(args)
    return code


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        name = error.filename or "the output"
        return f"{name} cannot be written: {error.strerror}; make room, or write elsewhere"
    return str(error) or type(error).__name__
