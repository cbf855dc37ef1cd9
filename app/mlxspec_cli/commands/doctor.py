"""`mlxspec doctor`: the setup of this machine, the cost of speculation here, and fixes."""

import os
import sys
import textwrap
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.bench.mac_file import Line, read_lines, to_text
from mlxspec.device import backend, machine_check
from mlxspec.errors import MlxspecError
from mlxspec.params import Options
from mlxspec_cli.arguments import new_file
from mlxspec_cli.output import harmless, say

if TYPE_CHECKING:
    from mlxspec.adapted.config import Admission  # its package needs MLX
    from mlxspec.drafting.auto import Choice

_ASKED = "Repeat these words three times: red, green, blue, red, green, blue."
_REPLY = 48  # tokens
_FEW, _MANY = 1024, 1 << 20  # numbers of a sum: about a row of hidden states; many rows
_INSTALL = "`apt install libopenblas0` (Debian, Ubuntu) or `dnf install openblas` (Fedora)"


@dataclass(frozen=True)
class Examination:
    """The facts that need no run of a model."""

    facts: backend.DeviceFacts
    model: Path | None = None  # the path of the default model; None without MLX
    has_model: bool = False  # whether it is there
    admissions: Mapping[str, "Admission"] = field(default_factory=dict)  # of mlx-lm's models

    @property
    def findings(self) -> list[str]:
        """The problems, a line each: the problem, its cost, and the fix."""
        facts, found = self.facts, list(self.facts.notes)
        if facts.backend == "none":
            problem = machine_check.problem(machine_check.machine_facts())
            found.append(
                "MLX cannot be imported: no model can run, recorded replies can. "
                + (problem or "Install it with `pip install mlxspec`")
            )
        if facts.is_stock_blas:
            fix = "See above" if facts.notes else f"Install OpenBLAS with {_INSTALL}"
            if os.environ.get("MLXSPEC_BLAS") == "stock":
                fix = "Unset MLXSPEC_BLAS, which asks for it"
            found.append(
                "MLX uses the reference BLAS it comes with: verifying n rows costs n times one "
                f"row, so speculation cannot pay. {fix}"
            )
        if self.model is not None and not self.has_model:
            found.append(
                f"The default model is not in {self.model.parent}: it is downloaded at the first "
                "use (93 MB). `mlxspec models --fetch` does so now"
            )
        return found

    @property
    def text(self) -> str:
        """The facts as lines of a name and a value."""
        facts, state = self.facts, "ready" if self.has_model else "not here"
        rows = {
            "device": f"{facts.device}, {facts.cores} cores, {facts.memory_gb:.1f} GB",
            "system": f"{facts.system}, Python {facts.python}",
            "mlx": f"{facts.mlx or 'not installed'} ({facts.backend})",
            "blas": facts.blas,
            "model": f"{self.model} ({state})" if self.model else "",
        }
        return "\n".join(f"{name:<8}{value}" for name, value in rows.items() if value)


def run(args: Namespace) -> int:
    """Print the report; return 1 if there are problems, else 0."""
    if args.model and args.hosts is None:
        raise ValueError("--model names what --hosts measures: give --hosts too, or leave it out")
    if args.mac_report is not None:
        return _write_mac_report(new_file(args.mac_report))
    if args.read_report is not None:
        return _print_lines(read_lines(Path(args.read_report)))
    if args.forget:
        _forget()
    elif args.hosts is not None:
        print(hosts_text(args.hosts, args.model or None))
    else:
        return report_machine()
    return 0


def report_machine() -> int:
    """Print the report on this machine; return 1 if there are problems, else 0."""
    examination = examine()
    print(examination.text, flush=True)
    trouble: list[str] = []
    if examination.has_model and not examination.facts.notes:
        choice = fastest_drafter()
        print(f"\ndrafter {choice.drafter}, {choice.reason}", flush=True)
        told, trouble = measure(choice.speeds)
        print("\n" + told, flush=True)
    if examination.admissions:
        print(f"\n{admissions_text(examination.admissions)}")
    findings = [f"! {finding}" for finding in (*examination.findings, *trouble)]
    print("", *(findings or ["Everything is as it should be."]), sep="\n")
    return int(bool(findings))


def examine() -> Examination:
    """Examine the machine, the libraries and the cache folder."""
    facts = backend.facts()
    if facts.backend == "none":
        return Examination(facts)
    from mlxspec.loading import admissions
    from mlxspec.loading.fetch.default_model import default_model_path, has_default_model

    return Examination(facts, default_model_path(), has_default_model(), admissions.stored())


def admissions_text(admissions: Mapping[str, "Admission"]) -> str:
    """Return a table of the models that were compared with mlx-lm's plain decoding here."""
    from mlxspec.loading.admissions import conditions

    today = conditions()
    lines = ["models of mlx-lm, compared here with its plain decoding (--forget deletes this):"]
    for key, admission in sorted(admissions.items()):
        age = "" if key.endswith(today) else ", with other versions or another device"
        about = f"{admission.words}, in {admission.seconds:.1f} s{age}"
        name = f"{harmless(key.split()[0]):<19} " if key.strip() else ""
        lines.append(textwrap.fill(name + harmless(about), 96, subsequent_indent=" " * 20))
    return "\n".join(lines)


def _forget() -> None:
    backend.check()
    from mlxspec.drafting import measured
    from mlxspec.loading import admissions

    count = len(admissions.stored())
    admissions.clear()
    measured.clear()
    print(f"forgot {count} comparisons with mlx-lm, and all measured costs and speeds")


def fastest_drafter() -> "Choice":
    """Return the drafter that `auto` chooses for the default model here, measured again."""
    from mlxspec import api
    from mlxspec.drafting import measured

    measured.clear()  # the machine may have been busy the last time
    return api.prepare(say=lambda line: print(line, file=sys.stderr)).choice


def measure(speeds: Mapping[str, float]) -> tuple[str, list[str]]:
    """Return the default model's cost curve as a table, with its meaning, and what is wrong."""
    from mlxspec.budget.cost import cost_curve, verify_forward
    from mlxspec.decoder.decoder import Decoder
    from mlxspec.device.speed import is_busy, load_words, measure_bandwidth
    from mlxspec.loading import load_model
    from mlxspec.loading.profile import num_weights
    from mlxspec.measure.cost import CONTEXT, cost_table, gains_text, roofline_text

    is_in_use = is_busy()
    loaded = load_model()
    model = loaded.model
    decoder = Decoder(model)
    decoder.observe([0] * CONTEXT)
    curve = cost_curve(verify_forward(decoder))
    told = (
        f"one forward of the default model over {CONTEXT} tokens, by rows verified:\n"
        f"{cost_table(curve)}"
    )
    if is_in_use or not curve.is_possible:
        busy = f"The machine is busy ({load_words()}): these figures do not count, none is kept"
        if not curve.is_possible:
            busy += "; several rows cannot take less time than one"
        return told, [f"{busy}. They are measured again in a chat; run this later"]
    roofline = roofline_text(measure_bandwidth(), model.nbytes, speeds)
    gains = gains_text(curve, loaded.weights, num_weights(loaded.own.config), backend.memory_gb())
    return f"{told}\n\n{textwrap.fill(gains, 96)}\n\n{textwrap.fill(roofline, 96)}", []


def hosts_text(hosts: str, source: str | None = None) -> str:
    """Return the cost of the link to other ranks, and the speed of decoding with them, as lines."""
    backend.check()
    from mlxspec import api
    from mlxspec.device.backend import GB
    from mlxspec.distributed import ranks
    from mlxspec.drafters.none import NoDrafter
    from mlxspec.measure.cost import cost_table, estimated_tps, forward_cost
    from mlxspec.measure.tables import cell, table
    from mlxspec.measure.trial import run_trial
    from mlxspec.params import GenerationParams

    params = GenerationParams(max_tokens=_REPLY, ignore_eos=True)
    prepared = api.prepare(source, Options(drafter="pool", hosts=hosts), say=say)
    engine, found = prepared.engine, ranks.start(hosts)
    latency_ms = 1e3 * found.seconds_of_a_sum(_FEW)
    bandwidth = 4e-6 * _MANY / found.seconds_of_a_sum(_MANY)
    layers = engine.target.num_hidden_layers
    # Each rank of a pipeline sends once, the last one to all of them.
    num_sums = found.group.size() if "pipeline" in engine.weights else 2 * layers
    cost = forward_cost(engine)
    rows = [["tokens/s", "estimated", "measured", "tokens/forward"]]
    for drafter in (NoDrafter(), engine.drafter):
        stats = run_trial(engine, engine.tokenizer.encode(_ASKED), params, drafter).stats
        tokens = stats["generated_tokens"] / max(stats["target_forwards"], 1)
        speeds = estimated_tps(cost, tokens, stats["mean_rows"]), stats["generation_tps"]
        rows.append([drafter.name, *(cell(speed, 1) for speed in speeds), cell(tokens)])
    sizes = ", ".join(f"{size / GB:.2f}" for size in found.sizes)
    return (
        f"{engine.name}, {engine.weights}; GB of weights by rank: {sizes}\n"
        f"link: {latency_ms:.2f} ms a sum of {_FEW:,} numbers, {bandwidth:.0f} MB/s in large ones; "
        f"{num_sums} collectives a forward take {num_sums * latency_ms:.0f} ms, whatever the rows\n"
        f"{cost_table(cost)}\n\n{table(rows)}"
    )


def _write_mac_report(path: Path) -> int:
    backend.check()
    from mlxspec.bench import mac
    from mlxspec.loading import fetch_default_model
    from mlxspec_app.bench.startup import figures
    from mlxspec_app.user.files import replace_file

    try:
        fetch_default_model()  # first, so that no measurement waits for it
    except MlxspecError as error:
        say(f"warning: what needs a model is not measured: {error}")
    say("this takes about ten minutes; Ctrl-C ends it and keeps what there is")
    try:
        found = mac.collect(
            mac.measurements(lambda: figures()["median_s"]),
            lambda findings: replace_file(path, to_text(findings).encode()),
            say,
        )
    finally:
        if path.exists():
            say(f"wrote {path}; it holds figures, no names and no paths: send it as it is")
    return _print_lines([line for finding in found.values() for line in finding.lines])


def _print_lines(lines: Sequence[Line]) -> int:
    for line in lines:
        print(harmless(str(line)))
    return int(any(line.kind == "BROKEN" for line in lines))  # drafts change the output
