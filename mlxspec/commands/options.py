"""From parsed arguments to settings; needs no MLX, so that a screen can open before it is there."""

import random
from argparse import Namespace

from mlxspec.law import Law
from mlxspec.options import Options
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams


def options(args: Namespace) -> Options:
    """Return what is to be loaded."""
    return Options(
        drafter=args.drafter or "auto",
        draft_model=args.draft_model,
        lookahead=args.lookahead,
        max_kv_size=args.max_kv_size,
        keep=args.keep,
        kv_bits=args.kv_bits,
    )


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
