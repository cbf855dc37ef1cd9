"""`mlxspec bench`: drafters against plain decoding and other projects, on this machine.

Tables on standard output and everything as one JSON document in its last line; progress on
standard error. The exit code is 1 where a greedy reply leaves the baseline's and no rounding
explains it.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from tqdm import tqdm

from mlxspec import __version__, backend
from mlxspec.bench import report
from mlxspec.bench.arms import check_arms, make_site, own_arms
from mlxspec.bench.keep import Setup, append_rows, read_rows
from mlxspec.bench.peers import PeerMissingError, build_peer, check_peers
from mlxspec.bench.prompts import choose_questions, read_questions
from mlxspec.bench.run import Case, Plan, Row, Runner
from mlxspec.bench.sample import Arm, Task
from mlxspec.choosing.assembly import Site
from mlxspec.cost import CostCurve, cost_curve, verify_forward
from mlxspec.errors import ContextLengthError
from mlxspec.loading import load_model
from mlxspec.options import Options

_COST_CONTEXT = 256


def run(args: Namespace) -> int:
    """Measure, and print the report; 1 where replies differ, 130 where it was interrupted.

    Raises:
        ValueError: An argument is out of range, or names what is not there.
        MlxspecError: The model or a drafter cannot be loaded.
    """
    plan = _plan(args)
    own, peers = _words(args.arms), _words(args.against)
    check_arms(own)
    check_peers(peers)
    loaded = load_model(args.model)
    options = Options(draft_model=args.draft_model, lookahead=args.lookahead)
    site = make_site(loaded, options, _say)
    notes: list[str] = []
    arms = [*own_arms(own, site), *_peers(peers, site, notes)]
    names = [arm.name for arm in arms]
    baseline = args.baseline or names[0]
    if baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is no arm; choose from {', '.join(names)}")
    setup = _setup(site, plan.task)
    rows = read_rows(Path(args.out), plan, setup) if args.resume else []
    cost = _cost(site)
    is_partial = False
    runner = Runner(site.engine, arms, baseline)
    try:
        _measure(runner, plan, rows, notes, setup, Path(args.out) if args.out else None)
    except KeyboardInterrupt:
        is_partial = True
    outcome = report.Outcome(setup, rows, names, baseline, cost, notes, is_partial)
    print(report.text(outcome))
    print(json.dumps(report.document(outcome)))
    return 130 if is_partial else int(outcome.has_real_difference)


def _plan(args: Namespace) -> Plan:
    if args.resume and not args.out:
        raise ValueError("--resume goes on with the rows of a file: name it with --out FILE")
    for name, number in (("--repeat", args.repeat), ("--max-tokens", args.max_tokens)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more; got {number}")
    questions = read_questions(args.prompts)
    chosen = choose_questions(questions, _words(args.categories), args.limit)
    task = Task(max_tokens=args.max_tokens, seed=args.seed, num_draft_tokens=args.k)
    return Plan(chosen, _temps(args.temps), args.repeat, task)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _temps(text: str) -> list[float]:
    try:
        temps = [float(word) for word in _words(text)]
    except ValueError:
        temps = []
    if not temps:
        raise ValueError(f"--temps takes temperatures with commas between, like 0,1; got {text!r}")
    return temps


def _peers(names: list[str], site: Site, notes: list[str]) -> list[Arm]:
    arms = []
    for name in names:
        try:
            arms.append(build_peer(name, site))
        except PeerMissingError as error:
            notes.append(str(error))
            _say(str(error))
    return arms


def _setup(site: Site, task: Task) -> Setup:
    facts = backend.facts()
    versions = {"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python}
    return {
        "model": site.loaded.name,
        "weights": site.loaded.weights,
        "device": f"{facts.device}, {facts.cores} cores, {facts.memory_gb:.0f} GB",
        "system": facts.system,
        "blas": facts.blas,
        "versions": versions | {name: found for name in _OTHERS if (found := _version(name))},
        "max_tokens": task.max_tokens,
        "num_draft_tokens": task.num_draft_tokens,
        "lookahead": site.lookahead,
        "seed": task.seed,
    }


_OTHERS = ("mlx-lm", "mlx-dspark")


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cost(site: Site) -> CostCurve:
    """Time forwards by their number of rows; the target's history is empty afterwards."""
    target = site.engine.target
    room = site.engine.context_length or _COST_CONTEXT
    target.observe([0] * min(_COST_CONTEXT, room // 2))
    curve = cost_curve(verify_forward(target))
    target.reset()
    return curve


def _measure(
    runner: Runner, plan: Plan, rows: list[Row], notes: list[str], setup: Setup, out: Path | None
) -> None:
    """Fill `rows` with those that are not there yet, and write them to the file as they come."""
    known: dict[Case, list[Row]] = {}
    for row in rows:
        known.setdefault(row.case, []).append(row)
    names = {arm.name for arm in runner.arms}
    missing = [case for case in plan.cases if names - {row.arm for row in known.get(case, ())}]
    if not missing:
        return
    is_seen = sys.stderr.isatty()  # in a log a line now and then is enough
    with tqdm(total=len(missing), unit="prompt", mininterval=0.1 if is_seen else 30) as bar:
        runner.warm_up(plan.task, lambda name: bar.set_description(f"warm-up: {name}", is_seen))
        for number, case in enumerate(missing):
            place = f"{case.question.category} {case.question.id}, T={case.temp:g}"

            def tell(name: str, place: str = place) -> None:
                bar.set_description(f"{place}: {name}", is_seen)

            try:
                new = runner.rows(case, number, plan.task, known.get(case, ()), tell)
            except ContextLengthError as error:
                notes.append(f"{place} is left out: {error}")
                new = []
            rows += new
            if out:
                append_rows(out, new, setup)
            bar.update()


def _say(line: str) -> None:
    print(f"mlxspec: {line}", file=sys.stderr, flush=True)
