"""How a reply is ended: by a token's id, by a function that gets each token, and before the first.

The reply ends with that very token, however many were accepted behind it in the same round; what
is in the cache is then the text that was told, and the next turn goes on from there.
"""

import json
from dataclasses import replace

import pytest

import mlxspec
from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftVerified, GenerationFinished, GenerationStarted
from mlxspec_cli.main import main
from tests.engine.test_lossless import DRAFTERS, MODELS, PROMPT, TARGETS, engine_for
from tests.support.adversaries import AlwaysRight
from tests.support.batches import PROMPTS, REPLIES, batch
from tests.support.model_folders import save_folder
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine
from tests.support.toy_chat import ToyChat

TARGET = TARGETS["llama", "full"]
REPLY = TARGET.greedy(PROMPT, 20)
STOP = REPLY[16]
END = REPLY.index(STOP) + 1  # tokens up to the first of them, itself included
PARAMS = GenerationParams(max_tokens=20, num_draft_tokens=6)
SAMPLED = GenerationParams(
    max_tokens=20, num_draft_tokens=6, sampling=SamplingParams(temperature=0.8), seed=3
)


class Stops:
    """Ends a reply with the n-th token that it is asked about; keeps all of them."""

    def __init__(self, count):
        self.count, self.asked = count, []

    def __call__(self, token):
        self.asked.append(token.token)
        return len(self.asked) == self.count


def reason(events):
    assert isinstance(events[-1], GenerationFinished)
    return events[-1].reason


def assert_goes_on(engine, said):
    """The cache holds what was said, and the next turn is the target's own."""
    text = [*PROMPT, *said]
    assert engine.target.history == tuple(text[:-1])
    assert engine.target.cache.offset == len(text) - 1
    longer = [*text, 9, 2]
    params = GenerationParams(max_tokens=6, num_draft_tokens=6)
    assert emitted(engine.generate(longer, params)) == TARGET.greedy(longer, 6)


def test_the_reply_stops_inside_a_round():
    """What follows would not be told apart from a stop between rounds otherwise."""
    assert 4 < END < 20
    engine = make_engine(MODELS["llama"], AlwaysRight(PROMPT + REPLY))
    rounds = [e.emit for e in engine.generate(PROMPT, PARAMS) if isinstance(e, DraftVerified)]
    starts = [sum(map(len, rounds[:n])) for n in range(len(rounds) + 1)]
    assert END not in starts
    assert {3, 10} - set(starts) == {3, 10}


WAYS = {  # settings, and after how many tokens the function that gets them says stop
    "a stop token": (replace(PARAMS, stop_tokens=(STOP,)), None),
    "the first": (PARAMS, 1),
    "the third": (PARAMS, 3),
    "the tenth": (PARAMS, 10),
    "sampled": (SAMPLED, 7),
}


@each_value(drafter=DRAFTERS, way=WAYS)
def test_the_reply_ends_with_the_very_token_that_ends_it(drafter, way):
    params, count = WAYS[way]
    engine, stops = engine_for(drafter, "llama"), Stops(count)
    events = list(engine.generate(PROMPT, params, stop_when=stops))
    said = emitted(events)
    assert said == stops.asked
    assert (len(said), reason(events)) == (count or END, "stop")
    if params is not SAMPLED:
        assert said == REPLY[: len(said)]
    assert_goes_on(engine, said)


@pytest.mark.parametrize("drafter", ["none", "pool", "eagle3"])
def test_whoever_is_asked_may_fail_and_the_next_turn_is_right(drafter):
    engine = engine_for(drafter, "llama")

    def fails(token):
        raise LookupError("no such token")

    with pytest.raises(LookupError, match="no such token"):
        list(engine.generate(PROMPT, PARAMS, stop_when=fails))
    assert emitted(engine.generate(PROMPT, PARAMS)) == REPLY


def test_all_tokens_are_asked_about_with_their_texts_and_the_last_one_too():
    asked = []
    engine = make_engine(MODELS["llama"], AlwaysRight(PROMPT + REPLY))
    engine.tokenizer.eos_token_ids = (STOP,)
    events = engine.generate(PROMPT, PARAMS, stop_when=lambda token: asked.append(token))
    told = [token for event in events for token in getattr(event, "emit", ())]
    assert asked == told
    assert asked[-1].token == STOP


def test_a_stop_token_ends_a_reply_that_ignores_the_models_own():
    engine = make_engine(MODELS["llama"], NoDrafter())
    engine.tokenizer.eos_token_ids = (REPLY[2],)
    params = GenerationParams(max_tokens=20, stop_tokens=(STOP,), ignore_eos=True)
    assert emitted(engine.generate(PROMPT, params)) == REPLY[:END]
    both = GenerationParams(max_tokens=20, stop_tokens=(STOP,))
    first = min(REPLY.index(REPLY[2]) + 1, END)
    assert emitted(engine.generate(PROMPT, both)) == REPLY[:first]


def test_the_text_of_a_stop_token_stays():
    engine = make_engine(MODELS["llama"], NoDrafter())
    params = GenerationParams(max_tokens=20, stop_tokens=(STOP,))
    letters = "".join(chr(ord("a") + token) for token in REPLY[:END])
    assert engine.generate_text(PROMPT, params) == letters


@pytest.mark.parametrize("drafter", ["none", "pool", "always right"])
def test_replies_of_a_batch_end_each_with_its_own_token(drafter):
    full = REPLIES["llama"]
    stops = [reply[4] for reply in full]
    params = [GenerationParams(max_tokens=18, stop_tokens=(stop,)) for stop in stops]
    replies = batch(drafter, params=params)
    for reply, stop, whole in zip(replies, stops, full, strict=True):
        assert list(reply.tokens) == whole[: whole.index(stop) + 1]
        assert reply.finish_reason == "stop"


@pytest.mark.parametrize("drafter", ["none", "pool", "always right"])
def test_whoever_is_told_of_a_batch_ends_each_reply_after_the_very_token(drafter):
    asked = {index: [] for index in range(len(PROMPTS))}

    def stop_when(index, token):
        asked[index].append(token.token)
        return len(asked[index]) == index + 2

    replies = batch(drafter, params=GenerationParams(max_tokens=18), stop_when=stop_when)
    for reply, whole in zip(replies, REPLIES["llama"], strict=True):
        assert list(reply.tokens) == asked[reply.index] == whole[: reply.index + 2]
        assert reply.finish_reason == "stop"


@pytest.mark.parametrize("drafter", ["none", "pool", "model", "medusa", "eagle3", "exit"])
def test_a_chat_goes_on_from_where_it_was_stopped(drafter):
    engine = engine_for(drafter, "llama", tokenizer=ToyChat())
    conversation = Conversation(engine)
    sampling = SamplingParams(logit_bias=dict.fromkeys((20, 22, 23), -100.0))  # marks of turns
    params = GenerationParams(max_tokens=12, num_draft_tokens=6, sampling=sampling)
    stops = Stops(3)
    first = emitted(conversation.reply("abc", params, stop_when=stops))
    assert first == stops.asked
    before = [*ToyChat().encode("uabcvw"), *first]
    second = emitted(conversation.reply("dd", params))
    closing = [] if first[-1] == ToyChat.eos_token_ids[0] else ToyChat().encode("v")
    text = [*before, *closing, *ToyChat().encode("uddvw")]
    prompt_length = len(text)
    for token in second:
        assert token == TARGET.distribution(tuple(text), sampling, prompt_length).argmax()
        text.append(token)
    assert emitted(conversation.regenerate(params, stop_when=Stops(1))) == second[:1]


# ---- nothing at all --------------------------------------------------------------------------

NOTHING = GenerationParams(max_tokens=0)


@pytest.mark.parametrize("drafter", ["none", "model", "eagle3", "exit"])
def test_a_reply_of_no_tokens_runs_no_forward(drafter, forwards):
    engine = engine_for(drafter, "llama")
    before = forwards.of(engine.target.model)
    events = list(engine.generate(PROMPT, NOTHING))
    assert [type(event) for event in events] == [GenerationStarted, GenerationFinished]
    assert (events[-1].reason, events[-1].text) == ("length", "")
    assert events[-1].stats["generated_tokens"] == 0
    assert forwards.of(engine.target.model) == before
    assert emitted(engine.generate(PROMPT, PARAMS)) == REPLY


def test_a_reply_of_no_tokens_leaves_the_cache_as_it_is(forwards):
    engine = engine_for("pool", "llama")
    list(engine.generate(PROMPT, PARAMS))
    history, before = engine.target.history, forwards.of(engine.target.model)
    list(engine.generate([1, 2], NOTHING))
    assert (engine.target.history, forwards.of(engine.target.model)) == (history, before)


def test_replies_of_no_tokens_are_texts_of_no_letters():
    engine = engine_for("pool", "llama")
    assert engine.generate_text(PROMPT, NOTHING) == ""
    assert "".join(mlxspec.stream_text(engine, PROMPT, NOTHING)) == ""


def test_a_batch_may_hold_replies_of_no_tokens():
    """The first places are full, and an empty one is left to the next prompt at once."""
    params = [GenerationParams(max_tokens=6)] * len(PROMPTS)
    params[1] = params[3] = NOTHING
    replies = batch("pool", params=params, batch_size=2)
    for reply, whole, own in zip(replies, REPLIES["llama"], params, strict=True):
        assert list(reply.tokens) == whole[: own.max_tokens]
        assert reply.finish_reason == "length"
    assert [reply.tokens for reply in batch("pool", params=NOTHING)] == [()] * len(PROMPTS)


def test_a_turn_without_an_answer_stays_in_the_chat():
    engine = engine_for("pool", "llama", tokenizer=ToyChat())
    conversation = Conversation(engine)
    assert emitted(conversation.reply("abc", NOTHING)) == []
    assert conversation.turns == [("abc", "")]
    assert len(emitted(conversation.reply("dd", GenerationParams(max_tokens=2)))) == 2


# ---- the command line ------------------------------------------------------------------------


@pytest.fixture
def generate(tmp_path, monkeypatch, capsys):
    """Run `mlxspec generate --json` on a tiny model; return the code and the document or error."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    folder = save_folder(tmp_path / "tiny")

    def run(*arguments):
        words = ["generate", "--model", str(folder), "--prompt", "abc", "--drafter", "pool"]
        code = main([*words, "--temp", "0", "--json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else err

    return run


def test_the_command_line_takes_stop_tokens(generate):
    _, whole = generate("--max-tokens", "12")
    tokens = whole["tokens"]
    code, cut = generate(
        "--max-tokens", "12", "--stop-token", str(tokens[5]), "--stop-token", str(tokens[3])
    )
    end = min(tokens.index(tokens[5]), tokens.index(tokens[3])) + 1
    assert (code, cut["tokens"], cut["finish_reason"]) == (0, tokens[:end], "stop")


def test_the_command_line_writes_no_token_where_none_is_asked_for(generate):
    code, document = generate("--max-tokens", "0")
    assert (code, document["tokens"], document["text"]) == (0, [], "")
    assert document["finish_reason"] == "length"


def test_a_stop_token_outside_the_vocabulary_is_refused_in_one_line(generate):
    code, err = generate("--stop-token", "99999")
    assert code == 2
    assert "stop_tokens must be token ids from 0 to" in err
    assert err.count("\n") == 1
