"""Arms with scripted replies, benchmark rows of these, and what `verify` may find."""

from mlxspec.bench.prompts import Question
from mlxspec.bench.run import Case, Row
from mlxspec.bench.sampled import DistributionCheck
from mlxspec.bench.verify_result import Agreement, CacheCheck, CheckResult, Parting
from mlxspec.measure.chi_square import Fit
from mlxspec.measure.drift import Drift, WidthDrift
from mlxspec.measure.trial import Trial
from mlxspec.trace.difference import Difference, Proof


def reply_of(tokens, seconds=1.0, **more) -> Trial:
    """A reply whose tokens but the first came in so many seconds, one per forward."""
    settings = {
        "prompt_tokens": 3,
        "ttft_s": 0.5,
        "first_tokens": 1,
        "forwards": len(tokens),
        **more,
    }
    return Trial(tokens=tuple(tokens), seconds=seconds, **settings)


def case_of(number=1, category="qa", temp=0.0, repeat=0, turns=("ab",)) -> Case:
    return Case(Question(str(number), category, tuple(turns)), temp, repeat)


def row_of(case, arm, *replies, differences=()) -> Row:
    return Row(case, arm, tuple(replies), tuple(differences))


class ScriptedArm:
    """Replies with the text of `script` for a prompt; records prompts and the order of all arms."""

    def __init__(self, name, script, order=None):
        self.name = name
        self.script = script
        self.order = order if order is not None else []
        self.prompts = []
        self.begun = 0

    def begin(self):
        self.begun += 1

    def write(self, prompt, params):
        self.prompts.append(list(prompt))
        self.order.append(self.name)
        return reply_of(self.script(prompt, params))


def parting_of(question, plain_logit, near_tie):
    found = Difference(4, 1, 2, plain_logit - 1.0, near_tie, 1.0, plain_logit)
    return Parting(question, Proof(9, 4, found, "a", "b"))


def result_of(*partings, drift=0.0, p_values=(0.5, 0.5)):
    widths = (WidthDrift(1, 64, 0.0, 0), WidthDrift(2, 64, drift, 0))
    agreement = Agreement("pool", 7, 300, 90, 40, tuple(partings))
    # Of one degree of freedom, whose tail these are.
    statistics = {0.5: 0.4549, 1e-4: 15.137, 1e-6: 23.928}
    distributions = [DistributionCheck("plain", Fit(500, statistics[p_values[0]], 1), 0, 0)]
    distributions.append(DistributionCheck("pool", Fit(500, statistics[p_values[1]], 1), 90, 40))
    cache = CacheCheck("full", Drift(widths, 0.01, drift), (agreement,))
    return CheckResult({}, (4,), (cache,), tuple(distributions), ())


NEAR = parting_of("qa 1", 1.002, near_tie=0.004)
REAL = parting_of("qa 2", 1.5, near_tie=0.004)
