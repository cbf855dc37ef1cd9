"""The parts of `mlxspec verify` on tiny models, against the target recomputed in NumPy."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mlxspec.bench.sampled import (
    OTHER,
    SAMPLING,
    JointDistribution,
    cases_of,
    check_distribution,
    draw,
    joint_distribution,
    sample_params,
)
from mlxspec.bench.verify import GreedyCase, check_replies
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.grammar.compiled import Grammars
from mlxspec.params import GenerationParams, Grammar
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.job import Job
from mlxspec_cli.commands import verify as verify_command
from mlxspec_cli.main import main
from tests.support.adversaries import RandomTrees, UniformChain
from tests.support.bench_arms import NEAR, REAL, ScriptedArm, reply_of, result_of
from tests.support.language import Language
from tests.support.tiny import ToyTokenizer, make_cache, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
PROMPT = [1, 2, 3, 1, 2]


def decoder(kind="full"):
    return Decoder(MODEL, make_cache(MODEL, kind))


# ---- greedy replies ------------------------------------------------------------------------


@pytest.mark.parametrize("num_plain", [3, 5], ids=["plain", "drafted"])
def test_a_reply_that_just_ends_is_no_near_tie(num_plain):
    engine = make_engine(MODEL, NoDrafter())
    case = GreedyCase("qa 1", tuple(PROMPT), GenerationParams(max_tokens=8), (1,) * num_plain)
    (found,) = check_replies(
        engine, written([1] * 4), [case], near_tie=9.0, tally=Counter()
    ).partings
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
    same = check_replies(engine, written(plain), cases, near_tie=1e-3, tally=Counter())
    assert (same.num_same, same.num_tokens, same.drafted, same.accepted) == (1, 8, 3, 1)
    assert same.faults == ("broke",)
    other = check_replies(engine, written(forged), cases, near_tie=1e-3, tally=Counter())
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


@pytest.mark.parametrize(
    ("grammar", "constrain", "bends"),
    [
        (None, lambda prompt: None, lambda case: bent(case.distribution)),
        (Grammar.regex(WORDS.pattern), constraint, lambda case: narrower()),
    ],
    ids=["any text", "a grammar"],
)
def test_samples_fit_their_own_law_and_no_other(grammar, constrain, bends):
    engine = make_engine(MODEL, RandomTrees(24))
    case = cases_of(engine.target, [PROMPT], [3], 150, constrain)[0]
    drawn = [draw(engine, None, case, seed, grammar=grammar) for seed in case.seeds]
    honest = check_distribution("any", [case], lambda case: drawn)
    assert honest.fit.p_value > 1e-4
    assert (honest.fit.num_draws, honest.drafted > 100) == (150, True)
    other = replace(case, distribution=bends(case))
    assert check_distribution("any", [other], lambda case: drawn).fit.p_value < 1e-4


def bent(joint):
    """The same cells, more evenly."""
    roots = {cell: prob**0.5 for cell, prob in joint.probs.items()}
    return JointDistribution({cell: root / sum(roots.values()) for cell, root in roots.items()})


def narrower():
    """The law of texts that end with an a or a b."""
    grammar = Grammar.regex("ab(c|d)(ba|cc|dab)[ab]{2}")
    return joint_distribution(decoder(), PROMPT, constraint(grammar=grammar))


def test_a_draw_is_in_the_cell_of_the_place_where_it_leaves():
    cells = [(1, 2, 3), (1, 2, OTHER), (1, 4), (1, OTHER), (5,), (OTHER,)]
    joint = JointDistribution(dict.fromkeys(cells, 1 / 6))
    draws = [(1, 2, 3), (1, 2, 9), (1, 4, 3), (1, 3, 3), (5, 2, 3), (2, 2, 3)]
    assert [joint.cell_of(draw) for draw in draws] == cells


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


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (result_of(), "bit-identical", "bit-identical: all 7 greedy replies"),
        (result_of(drift=1e-3), "near-ties", "near-ties of at most 0.004 (logits)"),
        (result_of(NEAR, drift=1e-3), "near-ties", "near-ties of at most 0.002 (logits): 1 of 7"),
        (result_of(NEAR, REAL, drift=1e-3), "not lossless", "in 1 of 7 greedy replies, cache full"),
        (result_of(REAL, drift=1e-3), "not lossless", "gaps of up to 0.5 (logits)"),
        (
            result_of(p_values=(0.5, 1e-4)),
            "bit-identical",
            "have the model's distribution",
        ),  # two tests
        (result_of(p_values=(0.5, 1e-6)), "not lossless", "pool samples from another distribution"),
        (
            result_of(p_values=(1e-6, 0.5)),
            "not lossless",
            "plain samples from another distribution",
        ),
        (result_of(p_values=(0.5, 1e-6)), "not lossless", "(p = 1e-06, at least 5e-05 is allowed)"),
    ],
)
def test_the_verdict_is_a_sentence(found, kind, words):
    assert found.verdict == kind
    assert words in found.verdict_text
    assert found.is_lossless == (kind != "not lossless")


def test_json_is_the_figures_alone(monkeypatch, capsys):
    monkeypatch.setattr(verify_command, "load_model", lambda *_, **__: None)
    monkeypatch.setattr(verify_command, "check", lambda *_: result_of(NEAR, drift=1e-3))
    assert main(["verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["is_off"]) == ("near-ties", [])
    assert found["caches"][0]["agreements"][0]["partings"][0]["is_near_tie"]
