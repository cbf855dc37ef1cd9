r"""`mlxspec man`: print the manual page, which the build puts into the wheel for `man mlxspec`.

In roff .SH and .SS are headings, .TP makes the next line the tag of a paragraph; \fB, \fI and \fR
are bold, italic and upright.
"""

import argparse
from collections.abc import Iterator

from mlxspec import __version__
from mlxspec_cli.parser import Argument, commands_of

_BEGIN = rf"""
.TH MLXSPEC 1 "" "mlxspec {__version__}" "User Commands"
.SH NAME
mlxspec \- lossless speculative decoding on MLX, and a chat that shows it
.SH SYNOPSIS
\fBmlxspec\fR \fICOMMAND\fR [\fIOPTIONS\fR]
.SH DESCRIPTION
A cheap drafter proposes a tree of tokens. A language model checks the whole tree in one forward
pass and keeps exactly what it would have said by itself.
Every command takes \fB\-\-help\fR, and \fB\-\-debug\fR to show the traceback of an error.
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
    if args.markdown:
        from mlxspec_cli.manual import manual  # Textual too, which the page itself needs not

        print(manual(args.parser))
    else:
        print(man_page(args.parser))
    return 0


def man_page(parser: argparse.ArgumentParser) -> str:
    """Return the page of a program and of all its commands, as roff."""
    return "\n".join([_BEGIN, *_lines(parser), _END])


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    for command in commands_of(parser):
        yield f'.SS "{command.name}"'
        yield _roff(command.description)
        for argument in command.arguments:
            yield from (".TP", _typed(argument), _roff(argument.help))


def _typed(argument: Argument) -> str:
    """Return an argument as it is typed: the option in bold, its value in italics."""
    value = argument.value and rf"\fI{_roff(argument.value)}\fR"
    options = ", ".join(rf"\fB{_roff(option)}\fR" for option in argument.options)
    return " ".join(filter(None, [options, value]))


def _roff(text: str) -> str:
    """Escape text for roff: dashes that can be copied, and no line that is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
