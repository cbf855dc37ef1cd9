"""`mlxspec bench`: drafters against plain decoding and other projects, on this machine.

It prints tables on standard output, or with `--json` all figures as one JSON document, and progress
on standard error. The exit code is 1 if a greedy reply differs from the baseline's by more than
rounding explains, and 130 after an interrupt, which prints the finished part.
"""

import gc
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from mlxspec.api import load_target
from mlxspec.bench import report
from mlxspec.bench.arms import PLAIN, check_arms, make_drafter, own_arms
from mlxspec.bench.context import (
    CONTEXT_HEADER,
    ContextFigures,
    context_lengths,
    context_row,
    measure_context,
)
from mlxspec.bench.keep import append_rows, read_rows
from mlxspec.bench.machine import Setup, forward_cost, setup_lines, setup_of
from mlxspec.bench.peers import PeerMissingError, build_peer, check_peers
from mlxspec.bench.predictions import PREDICTIONS_HEADER, measure_predictions
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.bench.run import Case, Plan, Row, Runner
from mlxspec.bench.sample import Arm, Task
from mlxspec.bench.stages import forward_table, profile_forward, profile_rounds, round_table
from mlxspec.bench.structured import STRUCTURED_HEADER, choose_schemas, measure_structured
from mlxspec.budget import Budget, FixedBudget, MeasuredBudget
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import DrafterContext
from mlxspec.errors import ContextLengthError
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS
from mlxspec_cli.arguments import options as load_options
from mlxspec_cli.arguments import words_of
from mlxspec_cli.output import say

_PROFILED_WIDTHS = (1, 4, 16)

Keep = Callable[[list[Row]], None]
"""Called with the rows of each finished conversation."""


def run(args: Namespace) -> int:
    """Measure, and print the report.

    Raises:
        ValueError: An argument is out of range, or names something that does not exist.
        MlxspecError: The model or a drafter cannot be loaded.
    """
    plan = _plan(args)
    own, peers = words_of(args.arms), words_of(args.against)
    check_arms(own)
    check_peers(peers)
    lengths = context_lengths(args.context) if args.context else []
    options = load_options(args)
    loaded = load_target(args.model, options, say=say)
    fixed = None if args.k is None else FixedBudget()
    drafter_context = make_drafter_context(loaded, options, say, budget=fixed)
    if lengths:
        measure = partial(measure_context, loaded, options, own, task=plan.task, say=say)
        setup = setup_of(drafter_context, plan.task, own[0])
        return _contexts(lengths, measure, setup, as_json=args.json)
    if args.profile:
        return _profile(drafter_context, own, plan, as_json=args.json)
    if args.predictions:
        return _predictions(drafter_context, own, plan, as_json=args.json)
    if args.structured:
        return _structured(drafter_context, own, plan, args)
    notes: list[str] = []
    budget = MeasuredBudget() if fixed is None else fixed
    arms = [*own_arms(own, drafter_context, budget), *_peers(peers, drafter_context, notes)]
    return _compare(args, plan, drafter_context, arms, budget, notes)


def _compare(
    args: Namespace,
    plan: Plan,
    drafter_context: DrafterContext,
    arms: list[Arm],
    budget: Budget,
    notes: list[str],
) -> int:
    names = [arm.name for arm in arms]
    baseline = args.baseline or names[0]
    if baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is not an arm; choose from {', '.join(names)}")
    setup = setup_of(drafter_context, plan.task, baseline)
    out = Path(args.out) if args.out else None
    rows = read_rows(out, plan, setup) if out and args.resume else []
    cost = forward_cost(drafter_context)
    # Costs measured at another time would not fit the speeds of this run.
    budget.record(0, cost)
    is_partial = False
    gc.freeze()  # loaded objects live on: collections can skip them
    try:
        _measure(
            Runner(drafter_context.engine, arms, baseline),
            plan,
            rows,
            notes,
            partial(_save_rows, out, setup),
        )
    except KeyboardInterrupt:
        is_partial = True
    finally:
        gc.unfreeze()
    result = report.BenchResult(setup, rows, names, baseline, cost, notes, is_partial)
    print(json.dumps(report.document(result)) if args.json else report.text(result))
    return 130 if is_partial else int(result.has_real_difference)


def _measure(runner: Runner, plan: Plan, rows: list[Row], notes: list[str], keep: Keep) -> None:
    """Measure the missing rows and add them, conversation by conversation."""
    known: dict[Case, list[Row]] = {}
    for row in rows:
        known.setdefault(row.case, []).append(row)
    names = {arm.name for arm in runner.arms}
    waiting = [case for case in plan.cases if names - {row.arm for row in known.get(case, ())}]
    if not waiting:
        return
    is_seen = sys.stderr.isatty()  # for a log, a line every 30 s is enough
    with tqdm(total=len(waiting), unit="prompt", mininterval=0.1 if is_seen else 30) as bar:
        runner.warm_up(plan.task, lambda name: bar.set_description(f"warm-up: {name}", is_seen))
        for number, case in enumerate(waiting):
            title = f"{case.question.category} {case.question.id}, T={case.temp:g}"

            def tell(name: str, title: str = title) -> None:
                bar.set_description(f"{title}: {name}", is_seen)

            try:
                new = runner.rows(case, number, plan.task, known.get(case, ()), tell)
            except ContextLengthError as error:
                notes.append(f"{title} is skipped: {error}")
                new = []
            rows += new
            keep(new)
            bar.update()


def _save_rows(out: Path | None, setup: Setup, rows: list[Row]) -> None:
    if out:
        append_rows(out, rows, setup)


def _profile(drafter_context: DrafterContext, own: list[str], plan: Plan, *, as_json: bool) -> int:
    """Print where the time goes for the first arm that drafts, over the first question."""
    name = next((name for name in own if name != "plain"), own[0])
    engine, task = drafter_context.engine, plan.task
    prompt = Runner(engine, [], name).prompt([{"role": "user", "content": _text(plan)}])
    params = replace(task, temperature=plan.temps[0], ignores_stop=True).params()
    profile_rounds(engine, make_drafter(name, drafter_context), prompt, params)  # warms up
    rounds = profile_rounds(engine, make_drafter(name, drafter_context), prompt, params)
    engine.target.attach(())
    engine.target.reset()
    engine.target.observe(prompt)
    forwards = [profile_forward(engine.target, width) for width in _PROFILED_WIDTHS]
    setup = setup_of(drafter_context, task, name)
    if as_json:
        found = {"rounds": asdict(rounds), "forwards": [asdict(item) for item in forwards]}
        print(json.dumps({"setup": dict(setup), **found}))
    else:
        print("\n".join(setup_lines(setup)))
        print(f"\n{round_table(rounds)}\n\n{forward_table(forwards)}")
    return 0


def _contexts(
    lengths: list[int],
    measure: Callable[..., list[ContextFigures]],
    setup: Setup,
    *,
    as_json: bool,
) -> int:
    def tell(line: str) -> None:
        if not as_json:
            print(line, flush=True)

    tell("\n".join(setup_lines(setup)) + f"\n\n{CONTEXT_HEADER}")
    found = []
    for length in lengths:
        new = measure(length=length)
        tell("\n".join(map(context_row, new)))
        found += new
    if as_json:
        print(json.dumps({"setup": dict(setup), "contexts": [asdict(item) for item in found]}))
    return 0


def _predictions(
    drafter_context: DrafterContext, own: list[str], plan: Plan, *, as_json: bool
) -> int:
    """Print the figures of predicted replies; return 1 if one differs beyond rounding."""
    engine = drafter_context.engine
    task = replace(plan.task, temperature=plan.temps[0])
    engine.measure_costs()
    arms = own_arms(own, drafter_context)
    found = measure_predictions(engine, arms, task, plan.repeats)
    setup = setup_of(drafter_context, task, PLAIN)
    if as_json:
        rows = [asdict(figures) for figures in found]
        print(json.dumps({"setup": dict(setup), "predictions": rows}))
    else:
        lines = [*setup_lines(setup), "", PREDICTIONS_HEADER, *(figures.line for figures in found)]
        print("\n".join(lines))
    differences = [figures.difference for figures in found]
    return int(any(one and not one.is_near_tie for one in differences))


def _structured(
    drafter_context: DrafterContext, own: list[str], plan: Plan, args: Namespace
) -> int:
    """Print the figures of replies under schemas, one table for each temperature."""
    engine = drafter_context.engine
    engine.measure_costs()
    questions = choose_schemas(words_of(args.categories), args.limit)
    tables = {}
    for temperature in plan.temps:
        task = replace(plan.task, temperature=temperature)
        arms = own_arms(own, drafter_context)
        figures = measure_structured(engine, arms, task, plan.repeats, questions)
        tables[temperature] = [asdict(one) for one in figures]
        if not args.json:
            setup = setup_of(drafter_context, task, PLAIN)
            rows = [one.line for one in figures]
            print("\n".join([*setup_lines(setup), "", STRUCTURED_HEADER, *rows, ""]), flush=True)
    if args.json:
        print(json.dumps({"structured": tables}))
    return 0


def _text(plan: Plan) -> str:
    return plan.questions[0].turns[0]


def _plan(args: Namespace) -> Plan:
    if args.resume and not args.out:
        raise ValueError("--resume needs a file of earlier rows: name it with --out FILE")
    for name, number in (("--repeat", args.repeat), ("--max-tokens", args.max_tokens)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more; got {number}")
    questions = read_questions(args.prompts)
    categories = [] if args.structured else words_of(args.categories)  # it has its own categories
    chosen = choose_questions(questions, categories, args.limit)
    most = DEFAULT_NUM_DRAFT_TOKENS if args.k is None else args.k
    if args.against and (args.top_p < 1 or args.min_p):
        raise ValueError(
            "--top-p and --min-p are for arms of mlxspec: other projects filter in another order, "
            "which is another distribution; leave out --against"
        )
    task = Task(
        max_tokens=args.max_tokens,
        top_p=args.top_p,
        min_p=args.min_p,
        seed=args.seed,
        num_draft_tokens=most,
    )
    temps = _temps(args.temps)
    for temp in temps:
        replace(task, temperature=temp)  # a bad value is refused now, not after an hour
    return Plan(chosen, temps, args.repeat, task)


def _temps(text: str) -> list[float]:
    try:
        temps = [float(word) for word in words_of(text)]
    except ValueError:
        temps = []
    if not temps:
        raise ValueError(f"--temps takes temperatures separated by commas, like 0,1; got {text!r}")
    return temps


def _peers(names: list[str], drafter_context: DrafterContext, notes: list[str]) -> list[Arm]:
    arms = []
    for name in names:
        try:
            arms.append(build_peer(name, drafter_context))
        except PeerMissingError as error:
            notes.append(str(error))
            say(str(error))
    return arms
