"""The arms: ours, mlx-lm's own loop on our weights, and a stand-in for a project not installed."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxspec.bench.arms import CHANGES, PredictedArm, check_arms, own_arms, plain_arm
from mlxspec.bench.peers import PeerMissingError, build_peer, check_peers, mlx_lm_model
from mlxspec.bench.stages import REST, Stopwatch, profile_rounds
from mlxspec.budget import CostCurve, FixedBudget
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.loading import load_model
from mlxspec.measure.trial import Watch
from mlxspec.params import GenerationParams, Grammar, Options, SamplingParams
from mlxspec.reply.pending import PendingRound
from tests.support.model_folders import save_folder
from tests.support.tiny import make_engine, tiny_model

PROMPT = [1, 2, 3, 1, 2]
PARAMS = GenerationParams(max_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_folder(tmp_path_factory.mktemp("bench") / "tiny")


@pytest.fixture
def context(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(
        "mlxspec.engine.engine.quick_costs", lambda *_: CostCurve({1: 1.0, 32: 2.0})
    )
    return make_drafter_context(load_model(folder), Options(draft_model=folder, lookahead=3), print)


@pytest.fixture
def plain(context):
    (arm,) = own_arms(["plain"], context)
    return arm.write(PROMPT, PARAMS)


def test_an_arm_replies_with_figures_of_its_engine(plain):
    assert len(plain.tokens) == plain.forwards == plain.rows == 12
    assert plain.prompt_tokens == 5
    assert (plain.first_tokens, plain.later_tokens) == (1, 11)
    assert plain.stats["target_forwards"] == 12
    assert 0 < plain.own_memory_gb < plain.peak_memory_gb


@pytest.mark.parametrize("name", ["suffix+table", "model"])
def test_every_drafter_writes_what_plain_decoding_writes(context, plain, name):
    (arm,) = own_arms([name], context)
    reply = arm.write(PROMPT, PARAMS)
    assert reply.tokens == plain.tokens
    assert reply.rows == reply.forwards + reply.stats["drafted"]


def test_a_conversation_begins_with_a_drafter_that_has_learned_nothing(context):
    (arm,) = own_arms(["suffix"], context)
    replies = [arm.write(PROMPT, PARAMS) for _ in range(2)]
    arm.begin()
    replies.append(arm.write(PROMPT, PARAMS))
    first, again, anew = (reply.forwards for reply in replies)
    assert again < first == anew
    assert [reply.stats["reused_tokens"] for reply in replies] == [0] * 3  # read anew each time


def test_replies_end_at_stop_tokens_and_go_on_where_asked(context):
    (arm,) = own_arms(["plain"], context)
    context.engine.tokenizer.eos_token_ids = tuple(range(context.target.vocab_size))
    assert len(arm.write(PROMPT, PARAMS).tokens) == 1
    assert len(arm.write(PROMPT, replace(PARAMS, ignore_eos=True)).tokens) == 12
    assert len(build_peer("mlx-lm", context).write(PROMPT, PARAMS).tokens) == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["plain", "none", "plain"], "stands twice"),
        (["plain", "psychic"], "'psychic' is not known"),
    ],
)
def test_arms_that_cannot_be_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        check_arms(names)


# ---- predictions ------------------------------------------------------------------------------

TEXT = " ".join(f"word{n}" for n in range(450))  # lines of three words


def changed_words(text):
    """How many words of a prediction are not those of the text."""
    return sum(one != other for one, other in zip(text.split(" "), TEXT.split(" "), strict=True))


def test_predictions_are_the_text_with_so_many_of_150_lines_changed():
    five, third, other = (change(TEXT) for change in CHANGES.values())
    assert changed_words(five) == 5 * 3
    assert changed_words(third) == 50 * 3
    assert changed_words(other) == 150 * 3
    assert {change("one two") for change in CHANGES.values()} != {"one two"}


def test_a_predicted_arm_gets_the_plain_reply_with_some_lines_changed(context, monkeypatch):
    monkeypatch.setitem(CHANGES, "few", lambda text: text + "!")
    (arm,) = own_arms(["suffix"], context)
    plain, asked = plain_arm(context), []
    monkeypatch.setattr(arm, "write", lambda prompt, params: asked.append(params))
    PredictedArm(arm, "few", plain).write(PROMPT, PARAMS)
    text = context.engine.tokenizer.decode(plain.write(PROMPT, PARAMS).tokens)
    assert [params.prediction for params in asked] == [text + "!"]


def test_plain_decoding_computes_each_token_of_a_grammar(context):
    params = replace(PARAMS, grammar=Grammar.regex("abcabcabc"))
    (none,) = own_arms(["none"], context)
    replies = [arm.write(PROMPT, params) for arm in (plain_arm(context), none)]
    assert replies[0].tokens == replies[1].tokens
    assert replies[0].forwards == len(replies[0].tokens) > replies[1].forwards


# ---- mlx-lm ----------------------------------------------------------------------------------


def test_mlx_lm_computes_with_the_arrays_that_are_loaded_here(context):
    ours = dict(tree_flatten(context.loaded.model.parameters()))
    theirs = dict(tree_flatten(mlx_lm_model(context.loaded.model).parameters()))
    before = mx.get_active_memory()
    mx.eval(theirs)
    assert mx.get_active_memory() == before
    assert all(mx.array_equal(theirs[name], array) for name, array in ours.items())


@pytest.mark.parametrize(
    ("name", "forwards"),
    [("mlx-lm", 12), ("mlx-lm-draft", 3)],  # by itself: all of three drafted tokens is accepted
)
def test_mlx_lm_writes_the_same_tokens_and_its_forwards_are_counted(context, plain, name, forwards):
    reply = build_peer(name, context).write(PROMPT, PARAMS)
    assert reply.tokens == plain.tokens
    assert (reply.prompt_tokens, reply.forwards) == (5, forwards)


def test_mlx_lm_draws_where_a_temperature_is_set(context):
    arm = build_peer("mlx-lm", context)
    params = GenerationParams(max_tokens=8, sampling=SamplingParams(temperature=2.0))
    texts = {arm.write(PROMPT, replace(params, seed=seed)).tokens for seed in range(4)}
    assert len(texts) > 1


# ---- a project that may not be here ------------------------------------------------------------


def test_a_project_that_is_not_installed_is_named_with_its_remedy(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlx_dspark", None)
    with pytest.raises(PeerMissingError, match=r"mlx-dspark is skipped .*: pip install mlx-dspark"):
        build_peer("mlx-dspark", context)


def test_a_project_that_cannot_run_the_model_is_left_out_with_the_reason(context):
    context.loaded.model.extra = mx.zeros((2,))
    with pytest.raises(PeerMissingError, match=r"mlx-lm is skipped: .*extra"):
        build_peer("mlx-lm", context)


def test_an_unknown_project_is_refused():
    with pytest.raises(ValueError, match="peer 'vllm' is not known; choose from mlx-lm"):
        check_peers(["mlx-lm", "vllm"])


@pytest.fixture
def dspark(monkeypatch):
    """A stand-in whose loop reports a first token and two rounds, the last one too long."""
    module = ModuleType("mlx_dspark")
    calls = []

    def loop(target, tokenizer, *, prompt_ids, max_new_tokens, on_text, on_round, **more):
        calls.append({"prompt_ids": prompt_ids, "max_new_tokens": max_new_tokens, **more})
        on_text("a")
        on_round(drafted=3, accepted=1, committed=2, cap=3, source="lookup")
        on_text("b")
        on_round(drafted=2, accepted=2, committed=3, cap=2, source="lookup")
        return SimpleNamespace(token_ids=list(range(max_new_tokens + 1)), target_forwards=3)

    module.lookup_generate = module.greedy_generate = loop
    module.Target = lambda model, tokenizer: SimpleNamespace(model=model, tokenizer=tokenizer)
    monkeypatch.setitem(sys.modules, "mlx_dspark", module)
    return calls


def test_rounds_of_mlx_dspark_are_counted_and_its_overlong_reply_is_cut(context, dspark):
    params = GenerationParams(max_tokens=5, sampling=SamplingParams(temperature=0.5), seed=3)
    reply = build_peer("mlx-dspark", context).write(PROMPT, params)
    assert reply.tokens == (0, 1, 2, 3, 4)
    assert (reply.first_tokens, reply.forwards, reply.rows) == (1, 3, 1 + 4 + 3)
    assert dspark == [{"prompt_ids": PROMPT, "max_new_tokens": 5, "temperature": 0.5, "seed": 3}]


# ---- the clock ---------------------------------------------------------------------------------


def test_a_watch_tells_the_first_tokens_from_the_later_ones():
    times = iter([0.0, 2.0, 3.0, 7.0])
    watch = Watch(clock=lambda: next(times))
    for count in (3, 1, 2):
        watch.saw(count)
    reply = watch.trial(range(6), PROMPT, forwards=3)
    assert (reply.ttft_s, reply.first_tokens, reply.later_tokens) == (2.0, 3, 3)
    assert reply.seconds == 5.0


def test_a_stage_within_a_stage_counts_for_itself_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("mlxspec.bench.stages.time.perf_counter", lambda: now[0])

    def passing(seconds):
        now[0] += seconds

    thing = SimpleNamespace(inner=lambda: passing(5.0))
    thing.outer = lambda: (passing(1.0), thing.inner(), passing(1.0))
    watch = Stopwatch()
    thing.inner, thing.outer = watch.timed(thing.inner, "in"), watch.timed(thing.outer, "out")
    passing(0.5)
    thing.outer()
    watch.stop()
    assert watch.seconds == {REST: 0.5, "out": 2.0, "in": 5.0}


def test_a_profile_names_the_stages_of_rounds_and_leaves_the_engine_as_it_was():
    engine = make_engine(tiny_model(), SuffixDrafter())
    params = GenerationParams(max_tokens=8)
    profile = profile_rounds(engine, engine.drafter, PROMPT, params)
    assert profile.tokens == 8
    verified = {"build the verification", "verify on the host"}
    assert set(profile.ms) & verified
    assert set(profile.ms) - verified == {
        REST, "draft", "build the forward", "wait for the device",
        "read out", "emit", "detokenise", "commit", "update the drafter",
    }  # fmt: skip
    assert {"forward_tree", "logits", "commit"}.isdisjoint(vars(engine.target))
    assert {"propose", "update", "start"}.isdisjoint(vars(engine.drafter))


class LooksAhead(FixedBudget):
    looks_ahead = True

    def ask(self, limit):
        return 0


def test_a_round_that_is_launched_ahead_waits_for_the_device(monkeypatch):
    now, launch = [0.0], PendingRound.launch

    def launched(pending):
        now[0] += 1.0
        launch(pending)

    engine = make_engine(tiny_model(), NoDrafter(), budget=LooksAhead())
    monkeypatch.setattr("mlxspec.bench.stages.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(PendingRound, "launch", launched)
    profile = profile_rounds(engine, engine.drafter, PROMPT, GenerationParams(max_tokens=8))
    assert now[0] > 0
    assert profile.ms.pop("wait for the device") == 1e3 * now[0] / profile.forwards
    assert not any(profile.ms.values())


def test_memory_is_counted_from_the_beginning_of_a_reply(monkeypatch):
    held = mx.zeros((1000, 1000))
    mx.eval(held)
    watch = Watch()
    more = mx.zeros((500, 1000))
    mx.eval(more)
    watch.saw(1)
    reply = watch.trial([1], PROMPT, forwards=1)
    assert 0.002 <= reply.own_memory_gb < 0.003
    assert reply.peak_memory_gb >= 0.006
