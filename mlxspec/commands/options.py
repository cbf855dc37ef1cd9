"""From parsed arguments to an engine and its settings; shared by `chat` and `generate`."""

import random
import sys
from argparse import Namespace

from tqdm import tqdm

from mlxspec import api
from mlxspec.reply import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams
from mlxspec.sampling import Law


def open_engine(
    args: Namespace, on_progress: api.Progress | None = None, say: api.Say | None = None
) -> api.Prepared:
    """Load what the arguments name.

    Args:
        args: Parsed arguments.
        on_progress: Told about a download; without it a download draws its own bar.
        say: Told what a user should know; without it that is printed to standard error.
    """
    options = api.Options(
        drafter=args.drafter or "auto",
        draft_model=args.draft_model,
        lookahead=args.lookahead,
        max_kv_size=args.max_kv_size,
        keep=args.keep,
        kv_bits=args.kv_bits,
    )
    return api.prepare(args.model or None, options, on_progress=on_progress, say=say or _print)


def _print(line: str) -> None:
    print(f"mlxspec: {line}", file=sys.stderr, flush=True)


def drafter_name(args: Namespace) -> str:
    """Return the drafter asked for, before anything is loaded."""
    return api.Options(drafter=args.drafter or "auto", draft_model=args.draft_model).asked


def generation_params(args: Namespace) -> GenerationParams:
    """Return the settings of a reply; a seed is drawn where none is given."""
    num_draft_tokens = args.num_draft_tokens
    return GenerationParams(
        max_tokens=args.max_tokens,
        law=Law(
            temperature=args.temp,
            top_k=args.top_k,
            top_p=args.top_p,
            min_p=args.min_p,
            repetition_penalty=args.repetition_penalty,
            presence_penalty=args.presence_penalty,
            frequency_penalty=args.frequency_penalty,
        ),
        seed=random.SystemRandom().getrandbits(32) if args.seed is None else args.seed,
        stop=tuple(args.stop),
        num_draft_tokens=DEFAULT_NUM_DRAFT_TOKENS if num_draft_tokens is None else num_draft_tokens,
    )


class PrefillBar:
    """A progress bar on standard error while a long prompt is read; nothing in a pipe."""

    SHORT_PROMPT = 1024

    def __init__(self) -> None:
        self._bar: tqdm[None] | None = None

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` prompt tokens are read."""
        if total < self.SHORT_PROMPT or not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = tqdm(total=total, desc="reading the prompt", unit="tok", leave=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._bar = None
