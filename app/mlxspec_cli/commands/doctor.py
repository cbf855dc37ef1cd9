"""`mlxspec doctor`: the facts of this machine, and what to do about them.

With `--mac-report FILE` everything that only a Mac can tell is measured and kept in a file, and
with `--read-report FILE` such a file is compared with what the tests assume.
"""

import sys
from argparse import Namespace
from pathlib import Path

from mlxspec.device import backend
from mlxspec.errors import MlxspecError
from mlxspec.report.document import Report, read_report, to_text
from mlxspec.report.reading import compare, is_lossless
from mlxspec_cli import doctor_report
from mlxspec_cli.saying import harmless, say


def run(args: Namespace) -> int:
    """Print the report; 1 when something is not as it should be.

    Raises:
        ReportError: The file to read is no report, or a damaged one.
        ValueError: The file to write is there already.
        OSError: It cannot be written.
        MlxspecError: MLX cannot run here.
    """
    if args.mac_report is not None:
        return _measure(Path(args.mac_report))
    if args.read_report is not None:
        return _told(read_report(Path(args.read_report)))
    return doctor_report.run()


def _measure(path: Path) -> int:
    """Measure everything into a file; an interrupt leaves there what was found until then."""
    from mlxspec.report.collect import collect  # a process less for those who only look
    from mlxspec.report.plan import SECONDS, parts_for
    from mlxspec_app.user.whole_file import replace_file

    if path.exists():
        raise ValueError(f"{path} is there already: name another file")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path.parent} is no folder: make it first, or name a file elsewhere")
    backend.check()
    _fetch()
    say(f"this takes {SECONDS / 60:.0f} minutes at most; Ctrl-C ends it and keeps what there is")
    try:
        collect(
            parts_for(is_mac=sys.platform == "darwin"),
            lambda records: replace_file(path, to_text(records).encode()),
            say,
        )
    finally:
        if path.exists():
            say(f"wrote {path}; it holds figures, no names and no paths: send it as it is")
    return _told(read_report(path))


def _fetch() -> None:
    """Bring the default model here, so that no part waits for it."""
    from mlxspec.loading import fetch_default_model

    try:
        fetch_default_model()
    except MlxspecError as error:
        say(f"warning: what needs a model is not measured: {error}")


def _told(report: Report) -> int:
    lines = compare(report)
    for line in lines:
        print(harmless(str(line)))
    return int(not is_lossless(lines))
