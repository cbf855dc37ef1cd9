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
from tests.engine.test_lossless import MODELS, PROMPT, TARGETS, TRAINED, engine_for
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
DRAFTERS = ("none", "pool", "random trees", "drawn tree", "model", "prediction", *TRAINED)


@each_value(drafter=DRAFTERS, way=WAYS)
def test_the_reply_ends_with_the_very_token_that_ends_it(drafter, way):
    params, count = WAYS[way]
    engine, stops = engine_for(drafter, "llama"), Stops(count)
    events = list(engine.generate(PROMPT, params, stop_when=stops))
    said = emitted(events)
    assert said == stops.asked
    assert (len(said), events[-1].reason) == (count or END, "stop")
    if params is not SAMPLED:
        assert said == REPLY[: len(said)]
    assert_goes_on(engine, said)


def test_all_tokens_are_asked_about_with_their_texts_and_the_last_one_too():
    asked = []
    engine = make_engine(MODELS["llama"], AlwaysRight(PROMPT + REPLY))
    engine.tokenizer.eos_token_ids = (STOP,)
    events = engine.generate(PROMPT, PARAMS, stop_when=lambda token: asked.append(token))
    told = [token for event in events for token in getattr(event, "emit", ())]
    assert asked == told
    assert asked[-1].token == STOP


def test_a_stop_token_ends_a_reply_that_ignores_the_models_own_and_its_text_stays():
    engine = make_engine(MODELS["llama"], NoDrafter())
    engine.tokenizer.eos_token_ids = (REPLY[2],)
    params = GenerationParams(max_tokens=20, stop_tokens=(STOP,), ignore_eos=True)
    assert engine.generate_text(PROMPT, params) == engine.tokenizer.decode(REPLY[:END])
    both = GenerationParams(max_tokens=20, stop_tokens=(STOP,))
    first = min(REPLY.index(REPLY[2]) + 1, END)
    assert emitted(engine.generate(PROMPT, both)) == REPLY[:first]


@pytest.mark.parametrize("drafter", ["none", "always right"])
def test_whoever_is_told_of_a_batch_ends_each_reply_after_the_very_token(drafter):
    asked = {index: [] for index in range(len(PROMPTS))}

    def stop_when(index, token):
        asked[index].append(token.token)
        return len(asked[index]) == index + 2

    replies = batch(drafter, params=GenerationParams(max_tokens=18), stop_when=stop_when)
    for reply, whole in zip(replies, REPLIES["llama"], strict=True):
        assert list(reply.tokens) == asked[reply.index] == whole[: reply.index + 2]
        assert reply.finish_reason == "stop"


# ---- nothing at all --------------------------------------------------------------------------

NOTHING = GenerationParams(max_tokens=0)


@pytest.mark.parametrize("drafter", ["pool", "model", "exit"])
def test_a_reply_of_no_tokens_runs_no_forward_and_leaves_the_cache_as_it_is(drafter, forwards):
    engine = engine_for(drafter, "llama")
    list(engine.generate(PROMPT, PARAMS))
    history, before = engine.target.history, forwards.of(engine.target.model)
    events = list(engine.generate([1, 2], NOTHING))
    assert [type(event) for event in events] == [GenerationStarted, GenerationFinished]
    assert (events[-1].reason, events[-1].text) == ("length", "")
    assert events[-1].stats["generated_tokens"] == 0
    assert "".join(mlxspec.stream_text(engine, [1, 2], NOTHING)) == ""
    assert (engine.target.history, forwards.of(engine.target.model)) == (history, before)
    assert emitted(engine.generate(PROMPT, PARAMS)) == REPLY


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


def test_the_command_line_takes_stop_tokens_and_a_length_of_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    words = ["generate", "--model", str(save_folder(tmp_path / "tiny")), "--prompt", "abc"]

    def generate(*more):
        code = main([*words, "--drafter", "pool", "--temp", "0", "--json", *more])
        document = json.loads(capsys.readouterr().out)
        return code, document["tokens"], document["finish_reason"]

    _, tokens, _ = generate("--max-tokens", "12")
    stops = [word for place in (5, 3) for word in ("--stop-token", str(tokens[place]))]
    end = min(tokens.index(tokens[5]), tokens.index(tokens[3])) + 1
    assert generate("--max-tokens", "12", *stops) == (0, tokens[:end], "stop")
    assert generate("--max-tokens", "0") == (0, [], "length")
