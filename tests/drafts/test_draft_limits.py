"""How wide and how deep drafts may be: they are so, and what is said does not change."""

import re
from collections import Counter
from dataclasses import replace

import pytest

import mlxspec.reply.verification as verification
from mlxspec.api import prepare
from mlxspec.budget import CostCurve
from mlxspec.device import backend
from mlxspec.drafters.base import fresh_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.params import DraftLimits, GenerationParams, Options, SamplingParams
from mlxspec.trace.events import DraftProposed
from mlxspec_cli.arguments import options
from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser
from tests.engine.test_lossless import MODELS, PROMPT, TARGETS, engine_for
from tests.support.drafter_files import medusa_parts, save_drafter
from tests.support.model_folders import save_folder
from tests.support.question_file import save_questions
from tests.support.tiny import emitted, make_engine

GROWING = {"model": 8, "eagle": 8, "eagle3": 8, "exit": 8}  # longest paths that they can be given
PARAMS = GenerationParams(max_tokens=20, num_draft_tokens=12)
SAMPLED = GenerationParams(
    max_tokens=12,
    num_draft_tokens=12,
    sampling=SamplingParams(temperature=0.8),
    seed=5,
    exact_seed=True,
)
REPLY = TARGETS["llama", "full"].greedy(PROMPT, 20)
LIMITED = {  # each way to be limited, and each drafter that is
    "suffix": DraftLimits(branching=1),
    "table": DraftLimits(branching=2),
    "pool": DraftLimits(depth=1),
    "model": DraftLimits(branching=2, depth=3),
    "medusa": DraftLimits(depth=1),
    "eagle": DraftLimits(branching=50, depth=50),
    "eagle3": DraftLimits(branching=1),
    "exit": DraftLimits(depth=1),
    "pool of trained heads": DraftLimits(branching=2, depth=3),
}


def shape_of(event):
    """Most children of a node, and nodes on the longest path, of a draft that was proposed."""
    depths = {0: 0}
    for node in event.nodes:
        depths[node.index] = depths[node.parent] + 1
    return max(Counter(node.parent for node in event.nodes).values()), max(depths.values())


def shapes_of(events):
    """Most children and longest path in all drafts."""
    shapes = [shape_of(event) for event in events if isinstance(event, DraftProposed)]
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


def limited(drafter, limits):
    engine = engine_for(drafter, "llama")
    engine.drafter.limit(limits)
    return engine


def assert_within(limits, events):
    children, depth = shapes_of(events)
    assert children <= (limits.branching or 50)
    assert depth <= (limits.depth or 50)


@pytest.mark.parametrize(("drafter", "limits"), LIMITED.items())
def test_drafts_are_no_wider_and_no_deeper_and_the_reply_is_the_targets(drafter, limits):
    events = list(limited(drafter, limits).generate(PROMPT, PARAMS))
    assert emitted(events) == REPLY
    assert_within(limits, events)


@pytest.mark.parametrize(
    ("drafter", "limits"),
    [
        ("pool", DraftLimits(branching=1)),
        ("model", DraftLimits(branching=2)),
        ("model", DraftLimits(depth=1)),
        ("eagle3", DraftLimits(branching=2, depth=3)),
        ("exit", DraftLimits(branching=50, depth=50)),
    ],
)
def test_a_sampled_reply_is_that_of_plain_sampling_with_its_seed(drafter, limits):
    plain = emitted(make_engine(MODELS["llama"], NoDrafter()).generate(PROMPT, SAMPLED))
    events = list(limited(drafter, limits).generate(PROMPT, SAMPLED))
    assert emitted(events) == plain
    assert_within(limits, events)


@pytest.mark.parametrize("drafter", LIMITED)
def test_what_is_allowed_is_used(drafter):
    """Without limits every one of them drafts more than the smallest limit lets through."""

    def drafted(limits):
        params = replace(PARAMS, max_tokens=17)
        return shapes_of(limited(drafter, limits).generate(PROMPT, params))

    free = drafted(DraftLimits())
    assert free[1] > 1
    if drafter not in ("model", "exit"):
        assert free[0] > 1
        assert drafted(DraftLimits(branching=1))[0] == 1
    if drafter in GROWING:
        assert drafted(DraftLimits(depth=8))[1] == GROWING[drafter] > free[1]


def test_a_drawn_tree_branches_as_widely_as_it_may():
    params = GenerationParams(
        max_tokens=20, num_draft_tokens=12, sampling=SamplingParams(temperature=0.8)
    )
    for drafter in ("model", "eagle3"):
        engine = limited(drafter, DraftLimits(branching=5, depth=2))
        assert shapes_of(engine.generate(PROMPT, params)) == (5, 2)


def test_a_drafter_of_a_batch_has_the_limits_of_the_one_it_is_like():
    pool = engine_for("pool", "llama").drafter
    pool.limit(DraftLimits(2, 3))
    fresh = fresh_drafter(pool)
    assert [fresh.limits, *(part.limits for part in fresh.drafters)] == [DraftLimits(2, 3)] * 3


# ---- how they arrive -------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        "mlxspec.engine.engine.quick_costs", lambda *_: CostCurve({1: 1.0, 32: 2.0})
    )
    return save_folder(tmp_path / "tiny")


@pytest.mark.parametrize("drafter", ["pool", "model", "suffix,medusa"])
def test_limits_arrive_at_the_drafter_and_its_parts(folder, tmp_path, drafter):
    path = save_drafter(tmp_path / "medusa.safetensors", "medusa", *medusa_parts())
    asked = drafter.replace("medusa", str(path))
    given = {"draft_model": folder} if drafter == "model" else {}
    wanted = Options(asked, branching=2, depth=3, **given)
    made = prepare(folder, wanted, say=lambda line: None).engine.drafter
    parts = [made, *getattr(made, "drafters", ())]
    assert [part.limits for part in parts] == [DraftLimits(2, 3)] * len(parts)


class RuleSpy:
    """Stands in for `verify` in a reply and keeps the rule that it is called with."""

    def __init__(self):
        self._verify, self.rules = verification.verify, set()

    def __call__(self, draft, distributions, noise, rule):
        self.rules.add(rule)
        return self._verify(draft, distributions, noise, rule)


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("call", ["generate", "generate_batch"])
def test_a_chain_rule_arrives_where_chains_are_verified(folder, monkeypatch, rule, call):
    spy = RuleSpy()
    monkeypatch.setattr(backend, "verifies_on_host", lambda: False)
    monkeypatch.setattr(verification, "verify", spy)
    engine = prepare(folder, Options("suffix", chain_rule=rule)).engine
    prompts = [5, 6] if call == "generate" else [[5, 6]]
    list(getattr(engine, call)(prompts, GenerationParams(max_tokens=3)))
    assert spy.rules == {rule}
    spy.rules.clear()
    other = {"block": "token", "token": "block"}[rule]
    list(getattr(engine, call)(prompts, GenerationParams(max_tokens=3, chain_rule=other)))
    assert spy.rules == {other}


GIVEN = ("--branching", "2", "--depth", "3", "--exit-threshold", "0.25", "--chain-rule", "token")


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_the_command_line_says_how_to_draft(command):
    found = options(build_parser().parse_args([command, *GIVEN]))
    assert found == Options(branching=2, depth=3, exit_threshold=0.25, chain_rule="token")
    assert options(build_parser().parse_args([command])) == Options()


def test_a_benchmark_is_told_how_to_draft_and_tells_it(folder, tmp_path, capsys):
    words = ["bench", str(folder), "--prompts", str(save_questions(tmp_path)), "--limit", "1"]
    assert main([*words, "--max-tokens", "8", "--arms", "plain,suffix", *GIVEN]) == 0
    out = capsys.readouterr().out
    assert "branching 2, depth 3, exit threshold 0.25, chain rule token" in out
    assert "are those of plain" in out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--branching", "0"), "branching must be 1 or more; got 0"),
        (("--depth", "-1"), "depth must be 1 or more; got -1"),
        (("--exit-threshold", "1.5"), "exit_threshold must be more than 0 and at most 1; got 1.5"),
        (("--exit-threshold", "nan"), "exit_threshold must be more than 0 .*; got nan"),
    ],
)
def test_numbers_out_of_range_are_refused_in_one_line(given, message, folder, capsys):
    assert main(["generate", "--model", str(folder), "--prompt", "a", *given]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert found.startswith("mlxspec: ")
    assert re.search(message, found)
