"""From parsed arguments to settings; needs no MLX, so that a screen can open before it is there."""

import random
from argparse import Namespace
from typing import Any

from mlxspec.params import GenerationParams, Law, Options
from mlxspec_app.user.paths import find_places

_LAW = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


_DRAFTING = ("exit_threshold", "branching", "depth", "chain_rule")


def options(args: Namespace) -> Options:
    """Return what is to be loaded."""
    return Options(
        drafter=args.drafter or "auto",
        draft_model=args.draft_model,
        lookahead=args.lookahead,
        max_kv_size=args.max_kv_size,
        keep=args.keep,
        kv_bits=args.kv_bits,
        dtype=args.dtype,
        learn=find_places(vars(args).get("data_dir")).learned if args.learn else None,
        **drafting(args),
    )


def drafting(args: Namespace) -> dict[str, Any]:
    """Return what `load` is told of how to draft, where anything is said of it."""
    return _stated({name: vars(args)[name] for name in _DRAFTING})


def generation_params(args: Namespace) -> GenerationParams:
    """Return the settings of a reply, the usual ones where none are given; a seed is drawn."""
    law = {field: vars(args)[argument] for field, argument in _LAW.items()}
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    given = {"max_tokens": args.max_tokens, "num_draft_tokens": args.num_draft_tokens}
    return GenerationParams(
        law=Law(**_stated(law)),
        seed=seed,
        stop=tuple(args.stop),
        stop_tokens=tuple(args.stop_token),
        exact_seed=args.exact_seed,
        **_stated(given),
    )


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
