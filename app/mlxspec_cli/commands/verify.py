"""`mlxspec verify`: check that drafts do not change the output of a model on this machine.

The exit code is 1 if a greedy reply differs from plain decoding at more than a near-tie, or if
sampled replies have another distribution; with `--exact` if any reply differs by a bit. An
interrupt prints what was compared until then.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from mlxspec.bench.arms import check_arms
from mlxspec.bench.exact import check_exact
from mlxspec.bench.exact import text as exact_text
from mlxspec.bench.lengths import counts
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.bench.verify import Plan, check
from mlxspec.bench.verify_result import text
from mlxspec.errors import ModelNotFoundError
from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import has_default_model
from mlxspec.measure.tables import as_json
from mlxspec.params import Options
from mlxspec_cli.arguments import grammar, words_of
from mlxspec_cli.output import say

_DRAWS = 500


def run(args: Namespace) -> int:
    """Check, and print the report."""
    plan = _plan(args)
    if args.model is None and not has_default_model():
        raise ModelNotFoundError(
            "there is no default model here: get it with `mlxspec models --fetch` (93 MB), or name "
            "a model that `mlxspec models` lists"
        )
    loaded = load_model(args.model, dtype=args.dtype, port=args.port, adapter=args.adapter)
    checked: Any = check_exact if args.exact else check
    result = checked(loaded, plan, say, _progress)
    report = exact_text if args.exact else text
    print(json.dumps(as_json(result)) if args.json else report(result))
    return int(not result.is_lossless)


def _plan(args: Namespace) -> Plan:
    drafters = words_of(args.drafters)
    if drafters:
        check_arms(drafters)
    if args.exact and args.draws is not None:
        raise ValueError(
            f"--draws {args.draws} has no effect with --exact, which compares whole replies and "
            "counts no samples: leave one of them out, or ask more questions with --limit"
        )
    draws = _DRAWS if args.draws is None else args.draws
    for name, number in (("--max-tokens", args.max_tokens), ("--draws", draws)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more; got {number}")
    return Plan(
        questions=choose_questions(read_questions(args.prompts), limit=args.limit),
        caches=_caches(args),
        drafters=drafters,
        num_nodes=counts(args.k, "--k", "4,12"),
        max_tokens=args.max_tokens,
        num_draws=draws,
        grammar=grammar(args),
    )


def _caches(args: Namespace) -> list[Options]:
    options = Options(draft_model=args.draft_model, lookahead=args.lookahead)
    known = {
        "full": options,
        "rotating": replace(options, max_kv_size=args.max_kv_size),
        "quantised": replace(options, kv_bits=args.kv_bits),
    }
    words = words_of(args.caches)
    for word in words:
        if word not in known:
            raise ValueError(f"cache {word!r} is not known; choose from {', '.join(known)}")
    if not words:
        raise ValueError(f"--caches names none: choose from {', '.join(known)}")
    return [known[word] for word in dict.fromkeys(words)]


def _progress(items: Sequence[Any], doing: str) -> Iterable[Any]:
    is_seen = sys.stderr.isatty()  # for a log, a line every 30 s is enough
    every_s = 0.1 if is_seen else 30
    bar: Iterable[Any] = tqdm(items, desc=doing, leave=not is_seen, mininterval=every_s)
    return bar
