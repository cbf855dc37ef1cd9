r"""`mlxspec man`: print the manual page, which `man mlxspec` shows where a wheel is installed.

The page is built from the parser's arguments, not from its help text, whose layout changes with
Python and with the width of the terminal. The wheel has the page from `docs/mlxspec.1`; a test
compares that file with the parser, and `mlxspec man > docs/mlxspec.1` updates it.

A line of roff that starts with a dot is a request: .SH and .SS are headings, .TP makes the next
line the tag of a paragraph. \fB, \fI and \fR are bold, italic and upright.
"""

import argparse
from collections.abc import Iterator

from mlxspec import __version__

_BEGIN = rf"""
.TH MLXSPEC 1 "" "mlxspec {__version__}" "User Commands"
.SH NAME
mlxspec \- lossless speculative decoding on MLX, and a chat that shows it
.SH SYNOPSIS
\fBmlxspec\fR \fICOMMAND\fR [\fIOPTIONS\fR]
.SH DESCRIPTION
A cheap drafter proposes a tree of tokens. A language model checks the whole tree in one forward
pass and keeps exactly what it would have said by itself.
Every command takes \fB\-\-help\fR.
.SH COMMANDS
""".strip()
_END = r"""
.SH EXIT STATUS
0 for success, 2 for a bad argument, 130 after Ctrl\-C, 1 for anything else that went wrong.
.SH ENVIRONMENT
.TP
\fBMLXSPEC_HOME\fR
a folder for chats, settings and downloads, in place of the folders that the system has for them
.TP
\fBMLXSPEC_BLAS\fR
on Linux, the BLAS that MLX calls: \fIauto\fR, \fIstock\fR for the one in its wheel, or a library
.TP
\fBMLXSPEC_WIRED\fR
on a Mac, 0 leaves the weights of large models unwired
.TP
\fBNO_COLOR\fR
if it is set, nothing is coloured
""".strip()


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    print(man_page(args.parser))
    return 0


def man_page(parser: argparse.ArgumentParser) -> str:
    """Return the page of a program and of all its commands, as roff."""
    return "\n".join([_BEGIN, *_commands(parser, parser.prog), _END])


def _commands(parser: argparse.ArgumentParser, above: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                yield f'.SS "{above} {word}"'
                yield _roff(command.description or "")
                yield from _arguments(command)
                yield from _commands(command, f"{above} {word}")


def _arguments(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield from (".TP", _typed(action), _roff(action.help or ""))


def _typed(action: argparse.Action) -> str:
    """Return an argument as it is typed: the option in bold, its value in italics."""
    value = "" if action.nargs == 0 else rf"\fI{_roff(_value(action))}\fR"
    options = ", ".join(rf"\fB{_roff(option)}\fR" for option in action.option_strings)
    return " ".join(filter(None, [options, value]))


def _value(action: argparse.Action) -> str:
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _roff(text: str) -> str:
    """Escape text for roff: dashes that can be copied, and no line that is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
