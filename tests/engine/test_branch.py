"""A reply that begins with kept tokens: what follows is the target's, after prompt and these."""

from dataclasses import replace

import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.trace.events import (
    GenerationFinished,
    GenerationStarted,
    TokensKept,
    TurnStarted,
    text_of,
)
from mlxspec.trace.file import event_from_json, event_to_json
from tests.support.adversaries import RandomTrees
from tests.support.language import EndedTokenizer
from tests.support.reasoning import KEEPING, reasoning_tokenizer, saying
from tests.support.reasoning import chat as reasoning_chat
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import ToyChat
from tests.support.truth import Target

MODEL = tiny_model()
TARGET = Target(MODEL)
EOS = ToyChat.eos_token_ids[0]
BIAS = {20: -100.0, 21: -100.0, 22: -100.0, 23: -100.0}  # only letters
SAMPLINGS = {
    "greedy": SamplingParams(logit_bias=BIAS),
    "penalties": SamplingParams(
        logit_bias=BIAS, presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.4
    ),
}
PLACE, MOST = 5, 12


def chat(drafter):
    return Conversation(make_engine(MODEL, drafter, tokenizer=ToyChat()))


@pytest.fixture
def written():
    """A chat of one turn, and the tokens of its reply."""
    conversation = chat(NoDrafter())
    return conversation, emitted(conversation.reply("abc", params_of()))


def params_of(sampling=SAMPLINGS["greedy"], **settings):
    return GenerationParams(max_tokens=MOST, num_draft_tokens=4, sampling=sampling, **settings)


def best_after(prompt, reply, sampling):
    probs = TARGET.distribution((*prompt, *reply), sampling, len(prompt))
    return probs.argsort()[::-1].tolist()


def plain_from(prompt, reply, sampling):
    """The greedy reply to a prompt, as many new tokens as allowed, each computed from nothing."""
    for _ in range(MOST):
        reply = [*reply, best_after(prompt, reply, sampling)[0]]
    return reply


def end_of(events) -> GenerationFinished:
    return next(event for event in events if isinstance(event, GenerationFinished))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("drafter", [SuffixDrafter, lambda: RandomTrees(24)])
def test_what_follows_the_chosen_token_is_plain_decoding_from_there(drafter, sampling):
    conversation = chat(drafter())
    params = params_of(sampling)
    written = emitted(conversation.reply("abcab", params))
    list(conversation.reply("de", params))
    prompt = ToyChat().encode("uabcabvw")
    other = best_after(prompt, written[:PLACE], sampling)[1]
    branch = emitted(conversation.branch(0, PLACE, other, params))
    assert branch == plain_from(prompt, [*written[:PLACE], other], sampling) != written
    assert conversation.turns == [("abcab", ToyChat().decode(branch))]
    assert conversation.prove().is_identical


@pytest.mark.parametrize("drafter", [NoDrafter, lambda: RandomTrees(24)])
def test_the_same_token_with_the_same_seed_gives_the_reply_again(drafter):
    sampling = SamplingParams(temperature=1.2, logit_bias=BIAS, presence_penalty=0.4)
    params = params_of(sampling, seed=7)
    conversation = chat(drafter())
    said = emitted(conversation.reply("abcab", params))
    for place in (0, PLACE, MOST - 1):
        assert emitted(conversation.branch(0, place, said[place], params))[:MOST] == said


@pytest.mark.parametrize("drafter", [SuffixDrafter, lambda: RandomTrees(24)])
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_reply_that_is_resumed_is_one_longer_reply(drafter, is_restored):
    conversation = chat(drafter())
    said = emitted(conversation.reply("abcab", params_of()))
    if is_restored:
        conversation = chat(drafter())
        conversation.restore([("abcab", ToyChat().decode(said))], tokens=[said])
    for _ in range(2):
        said = plain_from(ToyChat().encode("uabcabvw"), said, SAMPLINGS["greedy"])
        assert emitted(conversation.resume(params_of())) == said
    assert conversation.turns == [("abcab", ToyChat().decode(said))]
    assert conversation.prove().is_identical


def test_a_sampled_reply_is_resumed_with_the_numbers_that_a_longer_one_draws():
    sampling = SamplingParams(temperature=1.2, logit_bias=BIAS, presence_penalty=0.4)
    short, long = (GenerationParams(max_tokens=n, sampling=sampling, seed=7) for n in (9, 23))
    whole = emitted(chat(NoDrafter()).reply("abcab", long))
    conversation = chat(SuffixDrafter())
    list(conversation.reply("abcab", short))
    assert emitted(conversation.resume(replace(long, max_tokens=14))) == whole


def test_only_a_reply_that_is_there_is_resumed():
    conversation = chat(NoDrafter())
    with pytest.raises(ValueError, match="send a message first"):
        conversation.resume()
    conversation.restore([("abc", "de")])
    with pytest.raises(ValueError, match="another session"):
        conversation.resume()


def test_kept_tokens_are_told_at_once_and_in_no_other_figure(written):
    conversation, said = written
    events = list(conversation.branch(0, PLACE, 3, params_of()))
    assert [type(event) for event in events[:3]] == [TurnStarted, GenerationStarted, TokensKept]
    kept = events[2]
    assert [token.token for token in kept.emit] == [*said[:PLACE], 3]
    assert {token.kind for token in kept.emit} == {"kept"}
    assert event_from_json(event_to_json(kept)) == kept
    stats = end_of(events).stats
    assert (stats["kept_tokens"], stats["generated_tokens"]) == (PLACE + 1, MOST)
    assert sum(stats["kinds"].values()) == stats["generated_tokens"]
    assert "kept" not in stats["kinds"]
    assert "".join(map(text_of, events)) == conversation.turns[0][1]


def test_a_token_that_ends_the_text_ends_the_reply_without_a_forward(written):
    conversation, said = written
    events = list(conversation.branch(0, 3, EOS, params_of()))
    assert (end_of(events).reason, end_of(events).stats["target_forwards"]) == ("stop", 0)
    assert emitted(events) == [*said[:3], EOS]
    assert emitted(conversation.engine.generate([1, 2], params_of(), kept=[3, EOS, 4])) == [3, EOS]
    closed = ToyChat().encode("uabcvw") + said[:3] + ToyChat().encode("vudevw")
    found = emitted(conversation.reply("de", params_of()))
    assert found == plain_from(closed, [], SAMPLINGS["greedy"])


def test_a_stop_string_may_begin_in_the_kept_text(written):
    conversation, said = written
    text = ToyChat().decode(said)
    stop = text[PLACE - 1 : PLACE + 2]
    events = list(conversation.branch(0, PLACE, said[PLACE], params_of(stop=(stop,))))
    assert end_of(events).reason == "stop"
    assert conversation.turns[0][1] == text[: text.index(stop)]


def test_the_channel_goes_on_where_the_kept_text_ends():
    tokenizer = reasoning_tokenizer(KEEPING)
    conversation = reasoning_chat(tokenizer)
    list(conversation.reply("a", saying(tokenizer, "hm</think>yes<|im_end|>")))
    rest = saying(tokenizer, "</think>yes<|im_end|>", max_tokens=40)  # what follows the kept text
    events = list(conversation.branch(0, 1, tokenizer.encode("o")[0], rest))
    told = [token for event in events for token in getattr(event, "emit", ())]
    assert [token.channel for token in told[:3]] == ["reasoning", "reasoning", "mark"]
    assert [token.text for token in told if token.channel == "answer"][:3] == ["y", "e", "s"]


def test_a_grammar_reads_the_kept_tokens_and_refuses_what_it_forbids():
    model = tiny_model(vocab_size=5, head_dim=32, num_attention_heads=1)
    engine = make_engine(model, RandomTrees(5), tokenizer=EndedTokenizer(5))
    params = GenerationParams(max_tokens=8, grammar=Grammar.regex("(ab|cd)(a|b)"))
    a, b, c, d = range(4)
    for kept in ([c, d], [c]):
        assert emitted(engine.generate([1, 2], params, kept=kept))[:2] == [c, d]
    assert emitted(engine.generate([1, 2], params, kept=[a, b, a])) == [a, b, a]
    with pytest.raises(ValueError, match="forbids token 1 in place 2"):
        engine.generate([1, 2], params, kept=[c, b])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((1, 0, 3), "no turn 1"),
        ((0, MOST, 3), "no token 12"),
        ((0, 0, 99), "token 99 is not in the vocabulary"),
        ((0, -1, 3), "position"),
    ],
)
def test_a_place_that_is_none_leaves_the_chat_as_it_is(place, message, written):
    conversation, said = written
    with pytest.raises(ValueError, match=message):
        conversation.branch(*place)
    assert conversation.turns == [("abc", ToyChat().decode(said))]


def test_a_restored_reply_can_be_branched_where_its_tokens_are_known(written):
    first, said = written
    expected = emitted(first.branch(0, PLACE, 3, params_of()))
    again = chat(RandomTrees(24))
    text = ToyChat().decode(said)
    again.restore([("abc", text)], tokens=[said])
    assert again.alternatives(0, PLACE)[0].prob is None
    assert emitted(again.branch(0, PLACE, 3, params_of())) == expected
    for unknown in ((), [[1, 2, 3]], [[99]]):
        again.restore([("abc", text)], tokens=unknown)
        with pytest.raises(ValueError, match="another session"):
            again.branch(0, PLACE, 3)
