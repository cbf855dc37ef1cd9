"""`mlxspec export`: turn a recorded trace into a page, a picture, a film, text or a table."""

import sys
from argparse import Namespace
from pathlib import Path

_STDOUT = "-"


def run(args: Namespace) -> int:
    """Write every export of the arguments."""
    from mlxspec_app.export.filing import FORMATS, taken
    from mlxspec_app.export.recording import Recording

    wanted = {name: getattr(args, name) for name in FORMATS if getattr(args, name) is not None}
    if not wanted:
        options = ", ".join(f"--{name}" for name in FORMATS)
        raise ValueError(f"nothing to export: give at least one of {options} and a file, or -")
    if len(set(wanted.values())) < len(wanted):
        raise ValueError("two exports cannot go to the same file: name a file for each")
    for out in wanted.values():
        if out != _STDOUT and not args.force and Path(out).exists():
            raise ValueError(taken(out))
    recording = Recording.read(args.file)
    for name, out in wanted.items():
        _write(out, FORMATS[name].render(recording), replaces=args.force)
    return 0


def _write(out: str, text: str, *, replaces: bool) -> None:
    from mlxspec_app.export.filing import encoded, write_whole

    if out == _STDOUT:
        sys.stdout.buffer.write(encoded(text))
        sys.stdout.buffer.flush()
        return
    size = write_whole(Path(out), text, replaces=replaces)
    print(f"mlxspec: wrote {out} ({size / 1000:.0f} kB)", file=sys.stderr)
