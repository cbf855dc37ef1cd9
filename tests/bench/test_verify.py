"""The parts of `mlxspec verify` on tiny models, against the target recomputed in NumPy."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mlxspec.verify.rules as verify_module
from mlxspec.bench.sampled import (
    OTHER,
    SAMPLING,
    DistributionCheck,
    JointDistribution,
    cases_of,
    check_distribution,
    draw,
    joint_distribution,
    sample_params,
)
from mlxspec.bench.verify import GreedyCase, check_replies
from mlxspec.bench.verify_result import Agreement, CacheCheck, CheckResult, Parting
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.grammar.compiled import Grammars
from mlxspec.measure.chi_square import Fit
from mlxspec.measure.drift import Drift, WidthDrift
from mlxspec.params import GenerationParams, Grammar
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.job import Job
from mlxspec.trace.difference import Difference, Proof
from mlxspec_cli.commands import verify as verify_command
from mlxspec_cli.main import main
from tests.support.adversaries import RandomTrees, UniformChain
from tests.support.bench_arms import ScriptedArm, reply_of
from tests.support.language import Language
from tests.support.tiny import ToyTokenizer, make_cache, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [1, 2, 3, 1, 2]


def decoder(kind="full"):
    return Decoder(MODEL, make_cache(MODEL, kind))


# ---- greedy replies ------------------------------------------------------------------------


def parting(question, plain_logit, near_tie):
    found = Difference(4, 1, 2, plain_logit - 1.0, near_tie, 1.0, plain_logit)
    return Parting(question, Proof(9, 4, found, "a", "b"))


@pytest.mark.parametrize("num_plain", [3, 5], ids=["plain", "drafted"])
def test_a_reply_that_just_ends_is_no_near_tie(num_plain):
    engine = make_engine(MODEL, NoDrafter())
    case = GreedyCase("qa 1", tuple(PROMPT), GenerationParams(max_tokens=8), (1,) * num_plain)
    (found,) = check_replies(engine, written([1] * 4), [case], near_tie=9.0).partings
    assert not found.difference.is_near_tie
    assert found.difference.gap is None
    said = found.proof.describe()
    assert (
        said == f"the same for {min(num_plain, 4)} tokens, then one of the two ends: NOT A NEAR-TIE"
    )


def written(tokens):
    """An arm that replies so to everything."""
    stats = {"drafted": 3, "accepted": 1}
    arm = ScriptedArm("scripted", None)
    arm.write = lambda prompt, params: reply_of(tokens, stats=stats, fault="broke")
    return arm


def test_replies_are_compared_with_the_plain_ones():
    engine = make_engine(MODEL, NoDrafter())
    plain = Target(MODEL).greedy(PROMPT, 8)
    forged = [*plain[:5], (plain[5] + 1) % 24, *plain[6:]]
    cases = [GreedyCase("qa 1", tuple(PROMPT), GenerationParams(max_tokens=8), tuple(plain))]
    same = check_replies(engine, written(plain), cases, near_tie=1e-3)
    assert (same.num_same, same.num_tokens, same.drafted, same.accepted) == (1, 8, 3, 1)
    assert same.faults == ("broke",)
    other = check_replies(engine, written(forged), cases, near_tie=1e-3)
    assert other.num_same == 0
    found = other.partings[0]
    logits = Target(MODEL).logits((*PROMPT, *plain[:5]))
    assert (found.question, found.proof.num_same) == ("qa 1", 5)
    assert found.difference.gap == pytest.approx(logits[plain[5]] - logits[forged[5]], abs=1e-4)
    assert not found.difference.is_near_tie
    assert found.difference.near_tie == 1e-3  # that was measured, and not once more


# ---- sampled replies -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "int8"])
def test_the_joint_distribution_is_that_of_the_target(kind):
    joint = joint_distribution(decoder(kind), PROMPT)
    target = Target(MODEL, kind)
    expected = {}

    def follow(begun, prob):
        probs = target.distribution((*PROMPT, *begun), SAMPLING, len(PROMPT))
        best = np.argsort(-probs)[:16].tolist()
        expected[(*begun, OTHER)] = prob * (1 - probs[best].sum())
        for rank, token in enumerate(best):
            if rank < 3 and len(begun) < 2:
                follow((*begun, token), prob * probs[token])
            else:
                expected[(*begun, token)] = prob * probs[token]

    follow((), 1.0)
    assert len(expected) == 14 + 3 * 14 + 9 * 17
    assert joint.probs.keys() == expected.keys()
    for cell, prob in expected.items():
        assert joint.probs[cell] == pytest.approx(prob, abs=1e-4)


WORDS = Language("ab(c|d)(ba|cc|dab)[a-c]{2}", 4, 8)


def constraint(prompt=PROMPT, grammar=None):
    params = sample_params(grammar or Grammar.regex(WORDS.pattern))
    matcher = Grammars(ToyTokenizer(24)).matchers(params.grammar)
    job = Job(0, list(prompt), params, matcher=matcher)
    return Continuation(job, decoder(), ToyTokenizer(24)).constrain()


def test_under_a_grammar_a_cell_ends_with_the_third_choice():
    joint = joint_distribution(decoder(), PROMPT, constraint())
    words = WORDS.joint(Target(MODEL), PROMPT, SAMPLING)
    cells = {cell: prob for cell, prob in joint.probs.items() if cell[-1] != OTHER}
    assert {cell[:2] for cell in cells} == {(0, 1)}  # forced, before any choice
    assert {len(cell) for cell in cells} == {6, 7}
    for cell, prob in cells.items():
        told = sum(p for word, p in words.items() if word[: len(cell)] == cell)
        assert prob == pytest.approx(told, abs=1e-4)
    assert sum(joint.probs.values()) == pytest.approx(1)


def test_under_a_grammar_a_whole_text_is_a_cell():
    joint = joint_distribution(decoder(), PROMPT, constraint(grammar=Grammar.choices(["ab", "ac"])))
    assert {cell for cell, prob in joint.probs.items() if prob > 0} == {(0, 1), (0, 2)}
    assert joint.cell_of((0, 2)) == (0, 2)


def sampled(engine, cases, grammar=None):
    """The check of samples with the engine's drafter."""

    def draws(case):
        return (draw(engine, None, case, seed, grammar=grammar) for seed in case.seeds)

    return check_distribution("any", cases, draws)


@pytest.mark.parametrize("is_honest", [True, False])
def test_samples_under_a_grammar_are_tested_under_its_law(is_honest):
    grammar = Grammar.regex(WORDS.pattern if is_honest else "ab(c|d)(ba|cc|dab)[ab]{2}")
    engine = make_engine(MODEL, RandomTrees(4))
    case = cases_of(engine.target, [PROMPT], [4], 100, constraint)[0]
    found = sampled(engine, [case], grammar)
    assert (found.fit.p_value < 1e-4) != is_honest


def test_a_draw_is_in_the_cell_of_the_place_where_it_leaves():
    cells = [(1, 2, 3), (1, 2, OTHER), (1, 4), (1, OTHER), (5,), (OTHER,)]
    joint = JointDistribution(dict.fromkeys(cells, 1 / 6))
    draws = [(1, 2, 3), (1, 2, 9), (1, 4, 3), (1, 3, 3), (5, 2, 3), (2, 2, 3)]
    assert [joint.cell_of(draw) for draw in draws] == cells


@pytest.mark.parametrize("is_honest", [True, False])
def test_samples_of_another_distribution_are_seen(is_honest):
    engine = make_engine(MODEL, RandomTrees(24))
    case = cases_of(engine.target, [PROMPT], [3], 150)[0]
    if not is_honest:
        bent = {cell: prob**0.5 for cell, prob in case.distribution.probs.items()}
        total = sum(bent.values())
        joint = JointDistribution({cell: prob / total for cell, prob in bent.items()})
        case = replace(case, distribution=joint)
    found = sampled(engine, [case])
    assert (found.fit.p_value < 1e-4) != is_honest
    assert found.drafted > 100
    assert found.fit.num_draws == 150


def test_a_residual_that_is_dropped_is_seen(monkeypatch):
    """After a rejection the whole p is sampled, where only the residual is right."""
    monkeypatch.setattr(verify_module, "_residual", lambda p, q, weights, row: p[row])
    small = Decoder(tiny_model(vocab_size=4, seed=3))
    drafter = DraftModelDrafter(small, target_vocab_size=4, lookahead=2)
    engine = make_engine(tiny_model(vocab_size=4, seed=2), drafter)
    cases = cases_of(engine.target, [[1, 2]], [2], 500)
    found = sampled(engine, cases)
    assert found.fit.p_value < 5e-5


def test_draws_come_from_the_whole_width_of_a_draft():
    engine = make_engine(MODEL, UniformChain(24, length=12))
    case = cases_of(engine.target, [PROMPT], [12], 50)[0]
    trial = draw(engine, None, case, 1)
    assert len(trial.tokens) >= 3
    assert trial.stats["drafted"] >= 12


def test_each_number_of_nodes_has_its_own_seeds_and_the_prompt_that_says_most():
    prompts = [PROMPT, [4, 4], [3, 9, 2]]
    cases = cases_of(decoder(), prompts, [2, 5], 200)
    assert [case.num_nodes for case in cases] == [2, 5]
    assert [case.seeds for case in cases] == [range(200), range(200, 400)]
    assert cases[0].prompt != cases[1].prompt
    assert all(sum(case.distribution.probs.values()) == pytest.approx(1) for case in cases)
    with pytest.raises(ValueError, match="give more --draws"):
        cases_of(decoder(), prompts, [2], 6)


# ---- the verdict ---------------------------------------------------------------------------


def result(*partings, drift=0.0, p_values=(0.5, 0.5)):
    widths = (WidthDrift(1, 64, 0.0, 0), WidthDrift(2, 64, drift, 0))
    agreement = Agreement("pool", 7, 300, 90, 40, tuple(partings))
    # Of one degree of freedom, whose tail these are.
    statistics = {0.5: 0.4549, 1e-4: 15.137, 1e-6: 23.928}
    distributions = [DistributionCheck("plain", Fit(500, statistics[p_values[0]], 1), 0, 0)]
    distributions.append(DistributionCheck("pool", Fit(500, statistics[p_values[1]], 1), 90, 40))
    cache = CacheCheck("full", Drift(widths, 0.01, drift), (agreement,))
    return CheckResult({}, (4,), (cache,), tuple(distributions), ())


NEAR = parting("qa 1", 1.002, near_tie=0.004)
REAL = parting("qa 2", 1.5, near_tie=0.004)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (result(), "bit-identical", "bit-identical: all 7 greedy replies"),
        (result(drift=1e-3), "near-ties", "near-ties of at most 0.004 (logits)"),
        (result(NEAR, drift=1e-3), "near-ties", "near-ties of at most 0.002 (logits): 1 of 7"),
        (result(NEAR, REAL, drift=1e-3), "not lossless", "in 1 of 7 greedy replies, cache full"),
        (result(REAL, drift=1e-3), "not lossless", "gaps of up to 0.5 (logits)"),
        (
            result(p_values=(0.5, 1e-4)),
            "bit-identical",
            "have the model's distribution",
        ),  # two tests
        (result(p_values=(0.5, 1e-6)), "not lossless", "pool samples from another distribution"),
        (result(p_values=(1e-6, 0.5)), "not lossless", "plain samples from another distribution"),
        (result(p_values=(0.5, 1e-6)), "not lossless", "(p = 1e-06, at least 5e-05 is allowed)"),
    ],
)
def test_the_verdict_is_a_sentence(found, kind, words):
    assert found.verdict == kind
    assert words in found.verdict_text
    assert found.is_lossless == (kind != "not lossless")


def test_json_is_the_figures_alone(monkeypatch, capsys):
    monkeypatch.setattr(verify_command, "load_model", lambda *_, **__: None)
    monkeypatch.setattr(verify_command, "check", lambda *_: result(NEAR, drift=1e-3))
    assert main(["verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["is_off"]) == ("near-ties", [])
    assert found["caches"][0]["agreements"][0]["partings"][0]["is_near_tie"]
