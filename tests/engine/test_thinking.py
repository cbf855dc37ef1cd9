"""A limit of reasoning: the tokens before it are those without one, and then the mark is forced.

The truth knows the mark and a number alone, and the model is computed in NumPy.
"""

from dataclasses import replace

import numpy as np
import pytest

from mlxspec.drafters.grammar import GrammarDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.grammar.constraint import Constraint
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.text.reasoning import ChannelTracker, ReasoningMarks
from mlxspec.trace.difference import token_hash
from tests.engine.test_interrupts import LooksAhead
from tests.engine.test_reasoning import MARKS as ALL_MARKS
from tests.engine.test_reasoning import channels
from tests.grammar.test_distribution import (
    CACHES,
    DRAFTERS,
    MODEL,
    SAMPLING,
    SMALL,
    TARGETS,
    VOCAB,
    WAYS,
)
from tests.support.all_outcomes import joint_of_engine
from tests.support.language import EndedTokenizer
from tests.support.pairwise import each_value
from tests.support.reasoning import DROPPING, KEEPING, OPENING, chat, reasoning_tokenizer, saying
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import CHATML
from tests.support.truth import Target, exact_distribution

OPEN, CLOSE = 2, 3
MARKS = ReasoningMarks("<t>", "</t>", {(OPEN,): "reasoning", (CLOSE,): "answer"}, (OPEN,), (CLOSE,))
LENGTH = 3
PROMPT = [0, 1, 0, 4, OPEN]


class Thinker(EndedTokenizer):
    reasoning = MARKS


def engine_with(drafter, kind="full", **more):
    return make_engine(
        MODEL, None, kind, make_drafter=DRAFTERS[drafter], tokenizer=Thinker(VOCAB), **more
    )


def is_forced(reply, most, is_inside=True):
    """Whether the mark has to follow: by hand, from the prompt's opening mark on."""
    num_inside = 0
    for token in reply:
        if is_inside and token == CLOSE:
            is_inside = False
        elif is_inside:
            num_inside += 1
        else:
            is_inside = token == OPEN
    return is_inside and num_inside >= most


def distribution(target, reply, most, sampling, prompt=PROMPT):
    if is_forced(reply, most):
        return np.eye(len(target.logits((0,))))[CLOSE]
    text = (*prompt, *reply)
    return exact_distribution(target.logits(text), sampling, text, reply)


def greedy(most, count, kind="full"):
    reply = ()
    while len(reply) < count:
        reply += (int(np.argmax(distribution(TARGETS[kind], reply, most, SamplingParams()))),)
    return list(reply)


# ---- the law ---------------------------------------------------------------------------------


@each_value(drafter=DRAFTERS, kind=CACHES, num_nodes=[0, 1, 6], most=[0, 1, 3, 7])
def test_a_greedy_reply_closes_its_reasoning_at_the_limit(drafter, kind, num_nodes, most):
    params = GenerationParams(
        max_tokens=16, think_tokens=most, num_draft_tokens=num_nodes, ignore_eos=True
    )
    events = list(engine_with(drafter, kind).generate(PROMPT, params))
    assert emitted(events) == greedy(most, 16, kind)
    assert channels(events).count("reasoning") <= most


@each_value(drafter=DRAFTERS, sampling=SAMPLING, most=[2, 4])
def test_the_reply_up_to_the_limit_and_its_draws_are_those_without_one(drafter, sampling, most):
    """The reply after the mark is the one without a limit after the same text, seed and place."""
    params = GenerationParams(
        max_tokens=14, sampling=SAMPLING[sampling], seed=5, exact_seed=True, ignore_eos=True
    )
    free = emitted(engine_with(drafter).generate(PROMPT, params))
    limited = replace(params, think_tokens=most)
    found = emitted(engine_with(drafter).generate(PROMPT, limited))
    at = next((n for n in range(len(free)) if is_forced(free[:n], most)), len(free))
    assert found[:at] == free[:at]
    if at < len(free):
        assert found[at] == CLOSE
        kept = found[: at + 1]
        events = engine_with(drafter).generate(PROMPT, params, kept=kept)
        again = emitted(events)
        near = next((n for n in range(at + 1, 14) if is_forced(found[:n], most)), 14)
        assert again[:near] == found[:near]
    assert emitted(engine_with(drafter).generate(PROMPT, replace(limited, think_tokens=14))) == free


@each_value(way=WAYS, most=[0, 1, 2])
def test_the_joint_distribution_of_the_first_tokens_is_exact(way, most, monkeypatch):
    make, rule = WAYS[way]
    model = tiny_model(vocab_size=4, seed=2, **SMALL)
    engine = make_engine(model, NoDrafter(), tokenizer=Thinker(5))
    sampling = SamplingParams(temperature=1.0)
    params = GenerationParams(
        max_tokens=20, think_tokens=most, num_draft_tokens=6, sampling=sampling, chain_rule=rule
    )
    prompt = [0, 1, 0, OPEN]
    joint, _ = joint_of_engine(engine, make, prompt, params, LENGTH, monkeypatch)
    target, exact = Target(model), {(): 1.0}
    for _ in range(LENGTH):
        exact = {
            (*reply, token): prob * share
            for reply, prob in exact.items()
            for token, share in enumerate(distribution(target, reply, most, sampling, prompt))
            if share
        }
    assert sum(joint.values()) == pytest.approx(1, abs=1e-5)
    for text in {*joint, *exact}:
        assert joint.get(text, 0) == pytest.approx(exact.get(text, 0), abs=1e-5)


def test_a_draft_model_goes_on_after_a_mark_inside_its_tree():
    for seed in range(6):
        params = GenerationParams(
            max_tokens=14,
            think_tokens=2,
            sampling=SAMPLING["temperature"],
            seed=seed,
            exact_seed=True,
            ignore_eos=True,
        )
        found, plain = (
            emitted(engine_with(drafter).generate(PROMPT, params))
            for drafter in ("draft model", "none")
        )
        assert found == plain


# ---- what it costs, and how it is shown ------------------------------------------------------


def said(tokenizer, text, drafter=None, **settings):
    params = saying(tokenizer, text, max_tokens=40, **settings)
    return list(chat(tokenizer, drafter).engine.generate([5, 6], params))


def kinds(events):
    return [token.kind for event in events for token in getattr(event, "emit", ())]


def test_a_mark_of_several_tokens_costs_no_forward_of_its_own():
    engine = engine_with("none")
    engine.tokenizer.reasoning = replace(
        MARKS, borders={(OPEN,): "reasoning", (CLOSE, 0, 1): "answer"}, closing=(CLOSE, 0, 1)
    )
    params = GenerationParams(max_tokens=9, think_tokens=2, ignore_eos=True)
    events = list(engine.generate(PROMPT, params))
    forced = [n for n, kind in enumerate(kinds(events)) if kind == "forced"]
    assert forced[:3] == [2, 3, 4]
    assert emitted(events)[2:5] == [CLOSE, 0, 1]
    assert channels(events)[:5] == ["reasoning"] * 2 + ["mark"] * 3
    stats = events[-1].stats
    assert stats["target_forwards"] == 9 - len(forced)
    assert (stats["drafted"], stats["rounds"]) == (0, 0)


def test_a_mark_that_ends_the_reply_at_its_last_token_costs_nothing():
    events = list(
        engine_with("none").generate(
            PROMPT, GenerationParams(max_tokens=3, think_tokens=2, ignore_eos=True)
        )
    )
    assert kinds(events)[2] == "forced"
    assert events[-1].stats["target_forwards"] == 2
    assert events[-1].reason == "length"


def test_the_mark_is_forced_where_a_draft_goes_beyond_the_limit():
    """The reply without a limit is drafted, so the limit lies inside a draft."""
    free = greedy(99, 12)
    drafter = PredictionDrafter(tuple(free), NoDrafter())
    engine = make_engine(MODEL, drafter, tokenizer=Thinker(VOCAB))
    for most in range(1, 6):
        events = list(
            engine.generate(
                PROMPT, GenerationParams(max_tokens=12, think_tokens=most, ignore_eos=True)
            )
        )
        assert emitted(events) == greedy(most, 12)
        if is_forced(free[:most], most):
            assert kinds(events)[most] == "forced"


@pytest.mark.parametrize(("marks", "reply", "reasoning", "answer"), ALL_MARKS, ids=lambda _: "")
@pytest.mark.parametrize("most", [0, 3])
def test_every_mark_is_closed_as_its_model_closes_it(marks, reply, reasoning, answer, most):
    tokenizer = reasoning_tokenizer(CHATML, marks, are_special=True)
    opening = tokenizer.reasoning.start
    text = [*tokenizer.encode(opening), *tokenizer.encode("zzzzzz")]
    events = said(tokenizer, text, think_tokens=most)
    closing = reply[reply.rindex("b") + 1 : -1]
    found = tokenizer.decode(emitted(events), keep_special=True)
    num_inside = channels(events).count("reasoning")
    assert num_inside <= most
    start = f"{opening}zzz"[: len(opening) + num_inside]
    assert found.startswith(start + closing)
    assert kinds(events).count("forced") == len(tokenizer.reasoning.closing)


def test_a_mark_that_the_model_has_begun_is_completed():
    tokenizer = reasoning_tokenizer(CHATML, ("<|channel|>", "<|message|>", "<|start|>", "<|end|>"))
    opening = tokenizer.encode("<|channel|>analysis<|message|>")
    for begun in ("zz<|end|>", "zz<|end|><|start|>"):
        inside = tokenizer.encode(begun)
        text = [*opening, *inside, *tokenizer.encode("yyyy")]
        events = said(tokenizer, text, think_tokens=len(inside))
        found = tokenizer.decode(emitted(events), keep_special=True)
        assert "zz<|end|><|start|>assistant<|channel|>final<|message|>" in found


def test_a_second_block_of_reasoning_has_what_the_first_left():
    tokenizer = reasoning_tokenizer(CHATML)
    script = "<think>ab</think>c<think>zzzzzzz"
    events = said(tokenizer, script, think_tokens=5)
    assert channels(events).count("reasoning") == 5
    text = tokenizer.decode(emitted(events), keep_special=True)
    assert text.startswith("<think>ab</think>c<think>zzz</think>")


# ---- beside all else -------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "pool", "eagle3"])
def test_a_round_that_runs_ahead_keeps_the_limit(drafter):
    for most in range(6):
        engine = engine_with(drafter, budget=LooksAhead())
        params = GenerationParams(
            max_tokens=14, think_tokens=most, num_draft_tokens=6, ignore_eos=True
        )
        assert emitted(engine.generate(PROMPT, params)) == greedy(most, 14)


def test_rounds_run_ahead_as_long_as_no_token_is_forced(monkeypatch):
    from mlxspec.reply.continuation import Continuation

    seen, own = [], Continuation.may_look_ahead.fget
    monkeypatch.setattr(
        Continuation, "may_look_ahead", property(lambda self: seen.append(own(self)) or seen[-1])
    )
    params = GenerationParams(max_tokens=8, think_tokens=6, ignore_eos=True)
    list(engine_with("none", budget=LooksAhead()).generate(PROMPT, params))
    assert seen[:4] == [True] * 4


def test_the_replies_of_a_batch_have_limits_of_their_own():
    engine = engine_with("pool")
    params = [
        GenerationParams(max_tokens=12, think_tokens=most, num_draft_tokens=6, ignore_eos=True)
        for most in (-1, 0, 2, 4)
    ]
    batch = list(engine.generate_batch([PROMPT] * 4, params, batch_size=3))
    expected = [greedy(99, 12), *[greedy(most, 12) for most in (0, 2, 4)]]
    assert [list(reply.tokens) for reply in batch] == expected


@pytest.mark.parametrize("drafter", ["none", "pool", "draft model", "exit"])
@pytest.mark.parametrize("temperature", [0.0, 1.1])
def test_exact_replies_have_the_same_hash_with_every_drafter(drafter, temperature):
    params = GenerationParams(
        max_tokens=12,
        think_tokens=3,
        exact=True,
        ignore_eos=True,
        sampling=SamplingParams(temperature=temperature),
    )
    one, other = (
        list(engine_with(name).generate(PROMPT, params))[-1].stats["token_hash"]
        for name in (drafter, "none")
    )
    assert one == other
    if not temperature:
        assert one == token_hash(greedy(3, 12))


@pytest.mark.parametrize("drafter", ["none", "pool"])
def test_a_grammar_is_of_the_answer_after_the_forced_mark(drafter):
    params = GenerationParams(
        max_tokens=20, think_tokens=3, grammar=Grammar.regex("[ab]{3}a"), ignore_eos=True
    )
    events = list(engine_with(drafter).generate(PROMPT, params))
    tokens, where = emitted(events), channels(events)
    answer = [token for token, one in zip(tokens, where, strict=True) if one == "answer"]
    assert where.count("reasoning") <= 3
    assert "forced" in kinds(events)[: where.index("answer")]
    assert len(answer) == 4
    assert set(answer) <= {0, 1}
    assert answer[-1] == 0
    assert events[-1].reason == "stop"


def test_a_stop_string_and_max_tokens_end_a_reply_in_its_mark():
    tokenizer = reasoning_tokenizer(CHATML)
    events = said(tokenizer, "<think>zzzzzz", think_tokens=2, stop="</think>")
    assert events[-1].reason == "stop"
    assert emitted(events)[-1:] == list(tokenizer.reasoning.closing)
    for most in range(1, 6):
        params = GenerationParams(max_tokens=most, think_tokens=3, ignore_eos=True)
        assert emitted(engine_with("pool").generate(PROMPT, params)) == greedy(3, most)


def test_a_reply_that_keeps_a_longer_reasoning_closes_it_at_once():
    kept = [0, 1, 0, 0]
    params = GenerationParams(max_tokens=7, think_tokens=2, ignore_eos=True)
    for num in range(1, 5):
        events = list(engine_with("pool").generate(PROMPT, params, kept=kept[:num]))
        found = emitted(events)
        assert found[:num] == kept[:num]
        place = max(num, 2)
        assert is_forced(found[:place], 2)
        assert found[place] == CLOSE


def test_a_reply_without_marks_or_reasoning_is_that_without_a_limit():
    plain = make_engine(MODEL, SuffixDrafter(), tokenizer=EndedTokenizer(VOCAB))
    for engine, prompt in ((plain, PROMPT), (engine_with("suffix"), [1, 0, 1, CLOSE, 0])):
        free = GenerationParams(max_tokens=3, ignore_eos=True)
        found = emitted(engine.generate(prompt, free))
        if engine is not plain:
            assert OPEN not in found
        limited = replace(free, think_tokens=0)
        assert emitted(engine.generate(prompt, limited)) == found


def test_a_sampler_that_goes_on_thinking_is_refused():
    params = GenerationParams(max_tokens=6, think_tokens=2, sampler=lambda logprobs: 0)
    with pytest.raises(ValueError, match="chose token 0, which think_tokens forbids here"):
        list(engine_with("none").generate(PROMPT, params))


def test_a_tracker_that_was_given_other_tokens_forces_the_mark_from_its_start():
    marks = replace(MARKS, borders={(OPEN,): "reasoning", (3, 0): "answer"}, closing=(3, 0))
    tracker = ChannelTracker(marks, PROMPT, EndedTokenizer(VOCAB).token_bytes, 1)
    assert tracker.forced is None
    for token, forced in ((1, 3), (3, 0), (1, 3), (3, 0), (0, None)):
        tracker.next(token)
        assert tracker.forced == forced
    assert tracker.is_in_answer
    tracker = ChannelTracker(MARKS, PROMPT, EndedTokenizer(VOCAB).token_bytes, 2)
    assert [tracker.next(OPEN) for _ in range(2)] == ["mark"] * 2
    assert tracker.forced == CLOSE


def test_a_drafter_keeps_the_name_under_which_the_budget_knows_it():
    tracker = ChannelTracker(MARKS, PROMPT, EndedTokenizer(VOCAB).token_bytes, 1)
    for drafter in (SuffixDrafter(), NoDrafter()):
        assert GrammarDrafter(Constraint(None, VOCAB, (), tracker), drafter).name == drafter.name


# ---- a chat ----------------------------------------------------------------------------------


def test_a_chat_whose_template_opens_the_reasoning_counts_from_the_first_token():
    tokenizer = reasoning_tokenizer(OPENING)
    for most, text in ((0, "</think>"), (4, "zzzz</think>")):
        params = saying(tokenizer, "zzzzzzzzz", think_tokens=most)
        found = tokenizer.decode(emitted(chat(tokenizer).reply("2?", params)), keep_special=True)
        assert found.startswith(text)


def test_no_reasoning_is_the_switch_of_the_template_where_it_has_one():
    def prompt_of(template, **settings):
        tokenizer = reasoning_tokenizer(template)
        conversation = chat(tokenizer)
        list(conversation.reply("2?", saying(tokenizer, "a", **settings)))
        return tokenizer.decode(conversation.engine.target.history, keep_special=True)

    closed = "<think>\n\n</think>\n\n"
    assert prompt_of(DROPPING, think_tokens=0).endswith(closed)
    for settings in ({"think_tokens": 1}, {"chat_template_args": {"enable_thinking": True}}):
        assert closed not in prompt_of(DROPPING, **{"think_tokens": 0, **settings})
    assert prompt_of(KEEPING, think_tokens=0).endswith("<think>\n")
