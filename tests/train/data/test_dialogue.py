"""One conversation, with what the model says put into its mouth."""

import numpy as np
import pytest

from mlxspec.train.data.corpus import Conversation, DataSettings
from mlxspec.train.data.dialogue import (
    DialogueWriter,
    DroppedError,
    check_reply,
    has_periodic_tail,
)
from tests.support.toy_chat import ToyChat


def settings(**changed):
    plain = {"greedy_share": 1.0, "max_answer_tokens": 8, "max_prompt_tokens": 6}
    return DataSettings(**{**plain, "second_turn_share": 0.0, **changed})


def play(replies, turns=(), *, tokenizer=None, seed=0, context=100, **changed):
    """Run a conversation whose replies are given; return the requests and what came of it."""
    tokenizer = tokenizer or ToyChat()
    writer = DialogueWriter(tokenizer, settings(**changed), context, 24)
    task = writer.write(turns, np.random.default_rng(seed))
    requests, waiting = [], list(replies)
    try:
        requests.append(next(task))
        while True:
            requests.append(task.send(tokenizer.encode(waiting.pop(0))))
    except StopIteration as stop:
        assert not waiting
        return requests, stop.value


def text(tokens):
    return ToyChat().decode(tokens, keep_special=True)


def test_the_model_asks_and_answers():
    (asks, answers), conversation = play(["abcv", "dev"])
    assert (text(asks.prompt), asks.temperature, asks.max_tokens) == ("u", 1.0, 6)
    assert (text(answers.prompt), answers.temperature, answers.max_tokens) == ("uabcvw", 0.0, 8)
    assert text(conversation.tokens) == "uabcvwdev"
    assert conversation.mask.tolist() == [0] * 6 + [1] * 3


def test_given_turns_are_answered_one_after_the_other():
    requests, conversation = play(["dev", "hv"], ["abc", " fg "])
    assert [text(request.prompt) for request in requests] == ["uabcvw", "uabcvwdevufgvw"]
    assert text(conversation.tokens) == "uabcvwdevufgvwhv"
    assert conversation.spans() == [(6, 9), (14, 16)]


def test_the_model_may_go_on_by_itself():
    requests, conversation = play(["av", "bv", "cv", "dv"], second_turn_share=1.0)
    prompts = [text(request.prompt) for request in requests]
    assert prompts == ["u", "uavw", "uavwbvu", "uavwbvucvw"]
    assert text(conversation.tokens) == "uavwbvucvwdv"


def test_an_answer_that_was_cut_is_kept_and_ends_the_conversation():
    requests, conversation = play(["abcdefgh"], ["ij", "kl"])
    assert len(requests) == 1
    assert text(conversation.tokens) == "uijvwabcdefgh"
    assert conversation.mask.tolist() == [0] * 5 + [1] * 8


@pytest.mark.parametrize(
    ("replies", "fault"),
    [
        (["abcdef"], "unfinished"),
        (["a" * 20 + "v"], "loop"),
        (["abx"], "special token"),
        (["abw"], "special token"),
        (["v"], "empty"),
        (["abv", "v"], "empty"),
        (["abv", "cdx"], "special token"),
        (["abv", "a" * 20], "loop"),
    ],
)
def test_a_faulty_conversation_is_dropped_with_its_fault(replies, fault):
    assert play(replies, max_prompt_tokens=30)[1] == fault


@pytest.mark.parametrize("replies", [["cdx"], ["cdv", "x"]])
def test_a_fault_after_the_first_answer_only_ends_the_conversation(replies):
    _, conversation = play(["abv", "ev", *replies], second_turn_share=1.0)
    assert text(conversation.tokens) == "uabvwev"


@pytest.mark.parametrize(
    ("turn", "fault"), [("  ", "empty"), ("ab\ufffd", "broken text"), ("axb", "special token")]
)
def test_a_faulty_given_turn_is_dropped(turn, fault):
    class Strict(ToyChat):
        def encode(self, text, *, add_special_tokens=True):
            return super().encode(text.replace("\ufffd", "t"))

    assert play([], [turn], tokenizer=Strict())[1] == fault


@pytest.mark.parametrize(("context", "is_kept"), [(14, True), (13, False)])
def test_an_answer_needs_room_in_the_context(context, is_kept):
    result = play(["dev"] if is_kept else [], ["abc"], context=context)[1]
    assert result == "too long" if not is_kept else isinstance(result, Conversation)


def test_a_template_that_changes_earlier_turns_ends_the_conversation():
    class Forgetful(ToyChat):
        def render_chat(self, messages, **options):
            return super().render_chat(messages[-1:], **options)

    _, conversation = play(["bv"], ["a", "c"], tokenizer=Forgetful())
    assert text(conversation.tokens) == "uavwbv"


class TextFooter(ToyChat):
    """A user's turn ends with the letters "st" instead of a special token."""

    footer = "st"


def test_a_turn_may_end_with_text():
    (asks, answers), _ = play(["abstq", "dev"], tokenizer=TextFooter(), max_prompt_tokens=9)
    encode = ToyChat().encode
    assert [asks.is_over(encode(reply)) for reply in ("abs", "abst", "t")] == [False, True, False]
    assert text(answers.prompt) == "uabstw"
    assert play(["abcdef"], tokenizer=TextFooter())[1] == "unfinished"


def test_text_before_the_end_token_of_a_template_is_not_its_end():
    class Spaced(ToyChat):
        """A user's turn ends with a blank, written as "t", and an end token."""

        footer = "tv"

        def decode(self, tokens, *, keep_special=False):
            return super().decode(tokens, keep_special=keep_special).replace("t", " ")

    (_, answers), _ = play(["abtv", "dev"], tokenizer=Spaced())
    assert text(answers.prompt) == "uabtvw"


def test_a_reply_is_over_with_a_special_token_or_in_a_loop():
    (_, answers), _ = play(["av", "bv"])
    tail = [index % 3 for index in range(64)]
    assert not answers.is_over([1, 2, 3])
    assert answers.is_over([1, 2, 21])
    assert answers.is_over([1, 2, 23])
    assert answers.is_over(list(range(32)) + tail)
    assert not answers.is_over(list(range(31)) + tail)  # looked for at every 32nd token only
    assert not answers.is_over(list(range(96)))


def test_answers_are_greedy_and_sampled_as_often_as_asked():
    heats = []
    for seed in range(400):
        requests, conversation = play(["bv"], ["a"], seed=seed, greedy_share=0.5)
        kind = {0.0: 1, 0.7: 2, 1.0: 3}[requests[0].temperature]
        assert conversation.mask.tolist() == [0] * 4 + [kind] * 2
        heats.append(requests[0].temperature)
    shares = [heats.count(heat) / 400 for heat in (0.0, 0.7, 1.0)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.08)


def test_second_turns_are_as_frequent_as_asked():
    replies = ["av", "bv", "cv", "dv"]

    def has_second(seed):
        writer = DialogueWriter(ToyChat(), settings(second_turn_share=0.3), 100, 24)
        task = writer.write([], np.random.default_rng(seed))
        next(task)
        try:
            for reply in replies:
                task.send(ToyChat().encode(reply))
        except StopIteration as stop:
            return len(stop.value.spans()) == 2

    assert sum(map(has_second, range(300))) / 300 == pytest.approx(0.3, abs=0.08)


# ---- the filters, each at its limit ----------------------------------------------------------


def cycle(period, length):
    return [index % period for index in range(length)]


@pytest.mark.parametrize(
    ("tokens", "is_loop"),
    [
        *((([50, 51, 52, *cycle(period, 64)]), True) for period in (1, 7, 24)),
        (cycle(25, 200), False),
        (cycle(3, 63), False),
        ([*cycle(3, 100), 50], False),
        ([*cycle(3, 30), 50, *cycle(3, 63)], False),
        ([], False),
    ],
)
def test_the_last_64_tokens_are_a_loop_with_a_period_of_24_or_less(tokens, is_loop):
    assert has_periodic_tail(tokens) == is_loop


def repetitive(num_distinct, num_grams=20):
    """Tokens of which so many 4-grams are distinct: a run of new ones behind a run of one."""
    return [0] * (num_grams - num_distinct + 4) + list(range(1, num_distinct))


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        (repetitive(11), None),
        (repetitive(10), "loop"),  # of 4-grams 55 percent have to be distinct
        ([*range(100, 200), *cycle(24, 64)], "loop"),
        ([1, 2, 3], None),
        ([1, 99, 3], "special token"),
        ([], "empty"),
    ],
)
def test_a_reply_is_kept_or_dropped_with_its_fault(tokens, fault):
    if fault is None:
        check_reply(tokens, frozenset({99}))
    else:
        with pytest.raises(DroppedError, match=fault):
            check_reply(tokens, frozenset({99}))
