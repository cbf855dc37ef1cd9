"""`mlxspec bench`: drafters against plain decoding and other projects, on this machine.

The exit code is 1 if a greedy reply differs from the baseline's by more than rounding explains, and
130 after an interrupt, which prints the finished part.
"""

import gc
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mlxspec.api import load_target
from mlxspec.bench import arms, report
from mlxspec.bench.arms import PLAIN, Arm
from mlxspec.bench.lengths import context_table, counts, measure_context
from mlxspec.bench.peers import PeerMissingError, build_peer, check_peers
from mlxspec.bench.prompts import Question, choose_questions, read_questions, read_schemas
from mlxspec.bench.run import Case, Plan, Row, Runner, append_rows, read_rows, setup_lines, setup_of
from mlxspec.bench.stages import profile_rounds, round_table
from mlxspec.budget import Budget, FixedBudget, MeasuredBudget
from mlxspec.device.speed import is_busy, load_words
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext
from mlxspec.errors import ContextLengthError
from mlxspec.loading import LoadedModel
from mlxspec.measure.cost import forward_cost
from mlxspec.measure.tables import as_json
from mlxspec.measure.trial import prompt_tokens
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams, SamplingParams
from mlxspec_cli.arguments import REPLY_FLAGS, words_of
from mlxspec_cli.arguments import options as load_options
from mlxspec_cli.output import say

_PREDICTED = Question("diary", "edits", ("Write the diary of a long journey, day by day.",))


def run(args: Namespace) -> int:
    """Measure, and print the report."""
    plan = _plan(args)
    own, peers = words_of(args.arms), words_of(args.against)
    arms.check_arms(own)
    check_peers(peers)
    lengths = counts(args.context, "--context") if args.context else []
    options = load_options(args)
    loaded = load_target(args.model, options, say=say)
    budget = MeasuredBudget() if args.k is None else FixedBudget()
    context = make_drafter_context(loaded, options, say, budget=None if args.k is None else budget)
    if lengths:
        return _contexts(args, loaded, context, own, lengths, plan.params)
    if args.profile:
        return _profile(args, context, own, plan)
    notes: list[str] = []
    drafting = [name for name in own if name != PLAIN]
    if args.predictions:
        chosen = arms.predicted_arms(drafting, context, budget)
    elif args.structured:
        chosen = [arms.plain_arm(context), *arms.own_arms(drafting, context, budget)]
    else:
        chosen = [*arms.own_arms(own, context, budget)]
        for name in peers:
            try:
                chosen.append(build_peer(name, context))
            except PeerMissingError as error:
                notes.append(str(error))
                say(str(error))
    return _compare(args, plan, context, chosen, budget, notes)


def _compare(
    args: Namespace,
    plan: Plan,
    context: DrafterContext,
    arms: list[Arm],
    budget: Budget,
    notes: list[str],
) -> int:
    names = [arm.name for arm in arms]
    baseline = args.baseline or names[0]
    if baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is not an arm; choose from {', '.join(names)}")
    setup = setup_of(context, plan.params, baseline)
    out = Path(args.out) if args.out else None
    rows = read_rows(out, plan, setup) if out and args.resume else []
    cost = forward_cost(context.engine)
    if is_busy() or not cost.is_possible:
        notes.append(f"the machine is busy ({load_words()}): these figures do not count")
    # Costs measured at another time would not fit the speeds of this run.
    budget.record(0, cost)

    def keep(new: list[Row]) -> None:
        rows.extend(new)
        if out:
            append_rows(out, new, setup)

    is_partial = False
    gc.freeze()  # loaded objects live on: collections can skip them
    try:
        _measure(Runner(context.engine, arms, baseline), plan, list(rows), notes, keep)
    except KeyboardInterrupt:
        is_partial = True
    finally:
        gc.unfreeze()
    result = report.BenchResult(setup, rows, names, baseline, cost, notes, is_partial)
    print(json.dumps(report.document(result)) if args.json else report.text(result))
    return 130 if is_partial else int(result.has_real_difference)


def _measure(
    runner: Runner, plan: Plan, rows: list[Row], notes: list[str], keep: Callable[[list[Row]], None]
) -> None:
    """Measure the rows that are missing, conversation by conversation."""
    known: dict[Case, list[Row]] = {}
    for row in rows:
        known.setdefault(row.case, []).append(row)
    names = {arm.name for arm in runner.arms}
    waiting = [case for case in plan.cases if names - {row.arm for row in known.get(case, ())}]
    if not waiting:
        return
    is_seen = sys.stderr.isatty()  # for a log, a line every 30 s is enough
    with tqdm(total=len(waiting), unit="prompt", mininterval=0.1 if is_seen else 30) as bar:
        runner.warm_up(plan.params, lambda name: bar.set_description(f"warm-up: {name}", is_seen))
        for number, case in enumerate(waiting):
            title = f"{case.question.category} {case.question.id}, T={case.temp:g}"

            def tell(name: str, title: str = title) -> None:
                bar.set_description(f"{title}: {name}", is_seen)

            try:
                keep(runner.rows(case, number, plan.params, known.get(case, ()), tell))
            except ContextLengthError as error:
                notes.append(f"{title} is skipped: {error}")
            bar.update()


def _profile(args: Namespace, context: DrafterContext, own: list[str], plan: Plan) -> int:
    """Print where the time goes for the first arm that drafts, over the first question."""
    name = next((name for name in own if name != PLAIN), own[0])
    engine, first = context.engine, Case(plan.questions[0], plan.temps[0], 0)
    params = replace(first.params(plan.params), ignore_eos=True)
    prompt = prompt_tokens(engine, plan.questions[0].turns[0])
    for _ in range(2):  # the first one warms up
        rounds = profile_rounds(engine, arms.make_drafter(name, context), prompt, params)
    return _print(
        args, {"setup": setup_of(context, params, name), "rounds": rounds}, round_table(rounds)
    )


def _contexts(
    args: Namespace,
    loaded: LoadedModel,
    context: DrafterContext,
    own: list[str],
    lengths: list[int],
    params: GenerationParams,
) -> int:
    """Print the cost of a token after texts of some lengths."""
    setup, found = setup_of(context, params, own[0]), []
    for length in tqdm(lengths, unit="length", leave=False):
        found += measure_context(loaded, load_options(args), own, length, params, say)
    return _print(args, {"setup": setup, "contexts": found}, context_table(found))


def _print(args: Namespace, found: Mapping[str, Any], text: str) -> int:
    lines = [*setup_lines(found["setup"]), "", text]
    print(json.dumps(as_json(found)) if args.json else "\n".join(lines))
    return 0


def _plan(args: Namespace) -> Plan:
    if args.resume and not args.out:
        raise ValueError("--resume needs a file of earlier rows: name it with --out FILE")
    for name, value in (("--repeat", args.repeat), ("--max-tokens", args.max_tokens)):
        if value < 1:
            raise ValueError(f"{name} must be 1 or more; got {value}")
    questions = read_schemas() if args.structured else read_questions(args.prompts)
    chosen = choose_questions(questions, words_of(args.categories), args.limit)
    if args.against and (args.top_p < 1 or args.min_p):
        raise ValueError(
            "--top-p and --min-p are for arms of mlxspec: other projects filter in another order, "
            "which is another distribution; leave out --against"
        )
    params = GenerationParams(
        max_tokens=args.max_tokens,
        sampling=SamplingParams(top_p=args.top_p, min_p=args.min_p),
        seed=args.seed,
        num_draft_tokens=DEFAULT_NUM_DRAFT_TOKENS if args.k is None else args.k,
        ignore_eos=args.predictions,
    )
    try:
        temps = [float(word) for word in words_of(args.temps)]
    except ValueError:
        temps = []
    if not temps:
        raise ValueError(
            f"--temps takes temperatures separated by commas, like 0,1; got {args.temps!r}"
        )
    for temp in temps:  # a bad value is refused now, not after an hour
        REPLY_FLAGS["temperature"].asked.check("--temps", temp)
    return Plan([_PREDICTED] if args.predictions else chosen, temps, args.repeat, params)
