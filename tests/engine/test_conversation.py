"""A chat: the template, the turns, and what is read again."""

import pickle
from itertools import zip_longest

import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import ContextLengthError, StaleReplyError, UnsupportedOperationError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftProposed, GenerationStarted, PrefillProgress, TurnStarted
from tests.support.adversaries import RandomTrees
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import ToyChat
from tests.support.truth import Target

MODEL = tiny_model()
TARGET = Target(MODEL)
SAMPLING = SamplingParams(
    logit_bias={20: -100.0, 22: -100.0, 23: -100.0}
)  # only END may be emitted of these
PARAMS = GenerationParams(max_tokens=8, num_draft_tokens=4, sampling=SAMPLING)


def chat(drafter=None, kind="full", system=None, **config):
    model = tiny_model(**config) if config else MODEL
    engine = make_engine(model, drafter or NoDrafter(), kind, tokenizer=ToyChat())
    return Conversation(engine, system)


def encode(text):
    return ToyChat().encode(text)


def reply_to(tokens, count=8):
    """The target's reply, up to and with the end token."""
    reply = []
    while len(reply) < count and reply[-1:] != [ToyChat.eos_token_ids[0]]:
        probs = TARGET.distribution((*tokens, *reply), SAMPLING, len(tokens))
        reply.append(int(probs.argmax()))
    return reply


def said(tokens):
    return ToyChat().decode(tokens)


def expected_dialogue(turns):
    """Prompts and replies of a chat, each computed from nothing."""
    tokens, dialogue = [], []
    for text in turns:
        closed = not tokens or tokens[-1] == ToyChat.eos_token_ids[0]
        tokens = tokens + encode(("" if closed else "v") + f"u{text}vw")
        dialogue.append(reply_to(tokens))
        tokens = tokens + dialogue[-1]
    return dialogue


def reused_of(events):
    return max(event.reused for event in events if isinstance(event, PrefillProgress))


@pytest.mark.parametrize("drafter", [NoDrafter, lambda: RandomTrees(24)])
def test_each_turn_is_answered_in_the_light_of_those_before(drafter):
    conversation = chat(drafter())
    turns = ["abc", "de", "fgh", "abc"]
    replies = [emitted(conversation.reply(text, PARAMS)) for text in turns]
    assert replies == expected_dialogue(turns)


def test_a_turn_reads_only_its_own_tokens():
    conversation = chat()
    first = emitted(conversation.reply("abc", PARAMS))
    held = len(conversation.engine.target)
    assert reused_of(conversation.reply("de", PARAMS)) == held == len("uabcvw") + len(first) - 1


@pytest.mark.parametrize("way", ["should_stop", "stop_when"])
@pytest.mark.parametrize("drafter", [NoDrafter, lambda: RandomTrees(24)])
def test_a_stopped_reply_stays_part_of_the_chat(drafter, way):
    conversation, asked = chat(drafter()), []

    def stops(*token):
        asked.append(token)
        return len(asked) == 4

    part = emitted(conversation.reply("abc", PARAMS, **{way: stops}))
    assert 0 < len(part) < 8
    assert conversation.messages[-1]["content"] == said(part)
    prompt = encode("uabcvw") + part + encode("vudevw")
    assert emitted(conversation.reply("de", PARAMS)) == reply_to(prompt)


@pytest.mark.parametrize("callback", ["should_stop", "stop_when"])
def test_a_chat_goes_on_after_a_function_that_raised(callback):
    def fail(*_):
        raise LookupError("by the caller")

    conversation = chat()
    with pytest.raises(LookupError, match="by the caller"):
        list(conversation.reply("abc", PARAMS, **{callback: fail}))
    assert emitted(conversation.regenerate(PARAMS)) == expected_dialogue(["abc"])[0]


def test_regenerate_answers_the_same_turn_again():
    conversation = chat()
    list(conversation.reply("abc", PARAMS))
    for _ in range(2):
        assert emitted(conversation.regenerate(PARAMS)) == expected_dialogue(["abc"])[0]
    assert len(conversation.messages) == 2


def test_a_reply_that_is_never_read_is_no_turn():
    conversation = chat()
    unread = conversation.reply("abc", PARAMS)
    assert conversation.messages == []
    assert emitted(conversation.reply("de", PARAMS)) == expected_dialogue(["de"])[0]
    with pytest.raises(StaleReplyError, match="the chat has gone on"):
        next(unread)
    again = conversation.regenerate(PARAMS)
    assert conversation.turns == [("de", said(expected_dialogue(["de"])[0]))]
    assert emitted(again) == expected_dialogue(["de"])[0]
    assert len(conversation.turns) == 1


@pytest.mark.parametrize(
    "go_on",
    [
        lambda conversation: next(conversation.reply("de", PARAMS)),
        lambda conversation: next(conversation.regenerate(PARAMS)),
        lambda conversation: conversation.reset(),
        lambda conversation: conversation.cut(0),
        lambda conversation: conversation.restore([("x", "y")]),
    ],
    ids=["reply", "regenerate", "reset", "cut", "restore"],
)
def test_a_chat_that_goes_on_ends_the_reply_that_is_still_read(go_on):
    conversation = chat()
    held = conversation.reply("abc", PARAMS)
    for _ in range(5):
        next(held)
    go_on(conversation)
    turns = conversation.turns
    with pytest.raises(StaleReplyError):
        next(held)
    assert conversation.turns == turns


def test_a_turn_made_before_more_was_said_is_refused():
    conversation = chat()
    held = conversation.reply("abc", PARAMS)
    for _ in range(4):
        next(held)
    hasty = conversation.reply("de", PARAMS)
    list(held)
    with pytest.raises(StaleReplyError):
        next(hasty)
    assert len(conversation.turns) == 1


def test_two_chats_of_one_engine_do_not_mix():
    one = chat(RandomTrees(24))
    other = Conversation(one.engine)
    read = {"abc": [], "de": []}
    for events in zip_longest(one.reply("abc", PARAMS), other.reply("de", PARAMS)):
        for text, event in zip(read, events, strict=True):
            read[text] += [] if event is None else [event]
    for text, events in read.items():
        assert emitted(events) == expected_dialogue([text])[0]
    assert emitted(one.reply("fgh", PARAMS)) == expected_dialogue(["abc", "fgh"])[1]


def test_a_turn_that_does_not_fit_is_not_added_and_a_refused_regenerate_costs_none():
    conversation = chat(max_position_embeddings=32)
    list(conversation.reply("abc", PARAMS))
    before = conversation.messages
    with pytest.raises(ContextLengthError):
        conversation.reply("a" * 40, PARAMS)
    assert conversation.messages == before
    conversation.engine.target.context_length = 4
    with pytest.raises(ContextLengthError):
        conversation.regenerate(PARAMS)
    assert conversation.messages == before


def test_an_earlier_chat_goes_on_from_its_text():
    earlier = [("abc", "de"), ("fgh", "ij")]
    conversation = chat()
    conversation.restore(earlier, "st")
    assert conversation.turns == earlier
    prompt = encode("xstvuabcvwdevufghvwijvuklvw")
    assert emitted(conversation.reply("kl", PARAMS)) == reply_to(prompt)
    conversation.restore(earlier)
    assert emitted(conversation.regenerate(PARAMS)) == reply_to(encode("uabcvwdevufghvw"))


def test_ids_outside_the_vocabulary_are_of_another_model():
    """A larger vocabulary has ids that spell nothing here."""
    conversation = chat()
    conversation.restore([("abc", "de"), ("fgh", "ij")], tokens=[[3, 4], [8, 9, 24]])
    assert conversation.reply_tokens == [[3, 4], []]


def test_a_chat_that_was_cut_goes_on_as_if_the_rest_had_never_been_said():
    conversation = chat()
    for text in ("abc", "de", "fgh"):
        list(conversation.reply(text, PARAMS))
    conversation.cut(1)
    assert emitted(conversation.reply("kl", PARAMS)) == expected_dialogue(["abc", "kl"])[-1]
    conversation.reset()
    assert conversation.messages == []
    assert emitted(conversation.reply("de", PARAMS)) == expected_dialogue(["de"])[0]


@pytest.fixture
def crowded():
    """A chat of five turns in a context that holds about three of them."""
    conversation = chat(max_position_embeddings=48)
    conversation.forgets_oldest = True
    replies = [emitted(conversation.reply(text, PARAMS)) for text in ("abc", "de", "fgh", "ijk")]
    return conversation, replies


def test_the_oldest_turns_leave_a_context_that_is_full(crowded):
    conversation, replies = crowded
    last = emitted(conversation.reply("mn", PARAMS))
    left_out = conversation.num_forgotten
    assert 0 < left_out < 4
    turns = list(zip(("abc", "de", "fgh", "ijk"), replies, strict=True))[left_out:]
    kept = "".join(f"u{text}vw{said(reply)}v" for text, reply in turns)
    assert last == reply_to(encode(kept + "umnvw"))


def test_forgotten_turns_are_part_of_the_chat_and_remembered_where_they_fit_again(crowded):
    conversation, replies = crowded
    with pytest.raises(ContextLengthError):
        conversation.reply("a" * 60, PARAMS)  # alone it does not fit either
    list(conversation.reply("mn", PARAMS))
    assert [user for user, _ in conversation.turns] == ["abc", "de", "fgh", "ijk", "mn"]
    conversation.cut(1)
    again = emitted(conversation.reply("de", PARAMS))
    assert conversation.num_forgotten == 0
    assert again == replies[1]


@pytest.mark.parametrize(("missing", "num_forgotten"), [(0, 0), (1, 1)])
def test_a_turn_is_forgotten_only_where_prompt_and_reply_do_not_fit(missing, num_forgotten):
    params = GenerationParams(max_tokens=4, sampling=SAMPLING)
    free = chat()
    list(free.reply("abc", params))
    (last,) = (e for e in free.reply("de", params) if isinstance(e, PrefillProgress))
    tight = chat(max_position_embeddings=last.total + params.max_tokens - missing)
    tight.forgets_oldest = True
    for text in ("abc", "de"):
        list(tight.reply(text, params))
    assert tight.num_forgotten == num_forgotten


def test_a_message_fits_alone_up_to_the_last_token_of_the_context():
    conversation = chat(max_position_embeddings=10)
    assert conversation.fits_alone("abcdefg")  # and three marks around it
    assert not conversation.fits_alone("abcdefgh")


def test_a_chat_holds_each_token_once_however_many_turns_come_after_it():
    """The second half of a chat of equal turns takes as much as the first."""
    conversation = chat(kind="rotating")
    params = GenerationParams(max_tokens=1, sampling=SAMPLING)
    held = []
    for _ in range(17):
        list(conversation.reply("abcdefghij" * 50, params))
        held.append(len(pickle.dumps(conversation._exchanges)))  # what is shared counts once
    assert held[16] - held[8] < 1.1 * (held[8] - held[0])


@pytest.mark.parametrize("text", ["", "de"])
def test_a_race_answers_the_turn_twice_and_leaves_the_chat_alone(text):
    talk = chat(RandomTrees(24))
    list(talk.reply("abc", PARAMS))
    before, told = talk.turns, list(talk.race(text, PARAMS))
    plain, drafted = ([event for run, event in told if run == number] for number in (0, 1))
    turns = ["abc", text] if text else ["abc"]
    assert emitted(plain) == emitted(drafted) == expected_dialogue(turns)[-1]
    assert talk.turns == before
    assert plain[0] == drafted[0] == TurnStarted("user", turns[-1])
    assert [run for run, event in told if isinstance(event, GenerationStarted)] == [0, 1]
    assert {run for run, _ in told[: len(plain)]} == {0, 1}  # both turns, then the first run
    assert not any(isinstance(event, DraftProposed) for event in plain)
    assert any(isinstance(event, DraftProposed) for event in drafted)
    # Else the first run would pay for a prompt that the second one reuses.
    assert reused_of(plain) == reused_of(drafted) > 0


def earlier_chat():
    conversation = chat()
    conversation.restore([("abc", "de")])
    return conversation


@pytest.mark.parametrize(
    ("act", "error", "named"),
    [
        (lambda: chat().race(), ValueError, "no prompt to race with"),
        (lambda: chat().regenerate(PARAMS), ValueError, "send one first"),
        (lambda: chat().prove(), ValueError, "no reply to verify"),
        (lambda: earlier_chat().prove(), ValueError, "another session"),
        (
            lambda: Conversation(make_engine(MODEL, NoDrafter())),
            UnsupportedOperationError,
            "no chat template",
        ),
    ],
)
def test_what_needs_more_than_there_is_says_so(act, error, named):
    with pytest.raises(error, match=named):
        act()
