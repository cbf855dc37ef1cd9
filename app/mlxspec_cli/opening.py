"""Opens an engine from parsed arguments, for `chat` and `generate`."""

import sys
from argparse import Namespace

from tqdm import tqdm

from mlxspec import api
from mlxspec.drafting.engines import Prepared
from mlxspec.progress import Progress, Say
from mlxspec_cli.arguments import options
from mlxspec_cli.output import say as print_line


def open_engine(
    args: Namespace, on_progress: Progress | None = None, say: Say | None = None
) -> Prepared:
    """Load the model and the drafter of the arguments.

    `on_progress` is called during a download; None draws a progress bar instead. `say` is called
    with notices for the user; None prints them on standard error.
    """
    return api.prepare(
        args.model or None, options(args), on_progress=on_progress, say=say or print_line
    )


class PrefillBar:
    """A progress bar on standard error for the prefill of a long prompt; none in a pipe."""

    SHORT_PROMPT = 1024

    def __init__(self) -> None:
        self._bar: tqdm[None] | None = None

    def update(self, done: int, total: int) -> None:
        if total < self.SHORT_PROMPT or not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = tqdm(total=total, desc="reading the prompt", unit="tok", leave=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._bar = None
