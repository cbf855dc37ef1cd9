"""A corpus made by a tiny model: whole, resumed, split and without doubles."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.train.data.corpus import Conversation, DataSettings, load_corpus
from mlxspec.train.data.making import estimate_memory, is_heldout, make_corpus
from tests.support.tiny import ToyTokenizer
from tests.support.toy_chat import BIAS, ToyChat, toy_target
from tests.support.truth import Target

TARGET = toy_target()
SETTINGS = DataSettings(
    num_tokens=250,
    batch_size=4,
    max_answer_tokens=12,
    max_prompt_tokens=10,
    tries_per_shard=8,
    second_turn_share=0.3,
    heldout_share=0.3,
    temperatures=(1.0, 1.5),
)


class Stopped(Exception):
    """The user has had enough."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A corpus made in one go."""
    folder = tmp_path_factory.mktemp("whole")
    progress = make_corpus(TARGET, folder, SETTINGS)
    return folder, progress


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def corpus(folder):
    return load_corpus(folder, TARGET.config.vocab_size)


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


def text(tokens):
    return ToyChat().decode(tokens, keep_special=True)


def prompts_file(tmp_path, lines):
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(lines))
    return path


# ---- what it holds -------------------------------------------------------------------------


def test_there_are_as_many_tokens_as_asked_for(whole):
    folder, progress = whole
    conversations = corpus(folder)
    assert progress.num_tokens == sum(len(c.tokens) for c in conversations) >= 250
    assert progress.num_conversations == len(conversations)
    assert {int(conversation.mask.max()) for conversation in conversations} == {1, 2, 3}
    assert len(files(folder)) > 3


def test_every_conversation_is_a_chat_and_the_mask_covers_the_answers(whole):
    for conversation in corpus(whole[0]):
        said = text(conversation.tokens)
        position = 0
        for start, end in conversation.spans():
            prompt, answer = said[position:start], said[start:end]
            assert prompt.startswith("u")
            assert prompt.endswith("vw")
            assert set(prompt[1:-2]) <= set("abcdefghijklmnopqrst")
            assert set(answer.rstrip("v")) <= set("abcdefghijklmnopqrst")
            position = end
        assert position == len(said)
        assert len(conversation.spans()) in (1, 2)


def test_greedy_answers_are_what_the_target_would_say(whole):
    target, count = Target(TARGET.model), 0
    for conversation in corpus(whole[0])[:12]:
        tokens = conversation.tokens.tolist()
        for start, end in conversation.spans(1):
            count += 1
            for place in range(start, end):
                logits = target.logits(tuple(tokens[:place])) + BIAS
                assert tokens[place] == logits.argmax()
    assert count > 2


def test_prompts_of_a_file_are_answered_while_they_last(tmp_path):
    lines = ["a" + second + third for second in "bcde" for third in "abc"]
    settings = replace(SETTINGS, prompts=prompts_file(tmp_path, lines), num_tokens=300)
    make_corpus(TARGET, tmp_path / "out", settings)
    said = [
        text(conversation.tokens).split("v")[0][1:] for conversation in corpus(tmp_path / "out")
    ]
    given = [turn for turn in said if turn in lines]
    assert len(given) == len(set(given)) > 6
    assert len(said) > len(given) + 4


def test_doubles_are_dropped_those_of_an_earlier_run_too(tmp_path):
    settings = replace(
        SETTINGS,
        prompts=prompts_file(tmp_path, ["ac"] * 8),
        greedy_share=1.0,
        num_tokens=60,
        second_turn_share=0.0,
    )
    make_corpus(TARGET, tmp_path / "out", settings)
    progress = make_corpus(TARGET, tmp_path / "out", replace(settings, num_tokens=120))
    said = [text(conversation.tokens) for conversation in corpus(tmp_path / "out")]
    assert len(said) == len(set(said))
    assert progress.dropped["double"] >= 1


# ---- interrupted, resumed, enlarged --------------------------------------------------------


def test_another_seed_gives_other_text(whole, tmp_path):
    make_corpus(TARGET, tmp_path, replace(SETTINGS, seed=1, num_tokens=50))
    assert text(corpus(tmp_path)[0].tokens) != text(corpus(whole[0])[0].tokens)


@pytest.mark.parametrize("num_tokens", [1, 200])
def test_an_interrupted_run_goes_on_to_the_same_files(whole, tmp_path, num_tokens):
    def stop(progress):
        if progress.num_tokens >= num_tokens:
            raise Stopped

    with pytest.raises(Stopped):
        make_corpus(TARGET, tmp_path, SETTINGS, stop)
    assert 1 <= len(files(tmp_path)) < len(files(whole[0]))
    progress = make_corpus(TARGET, tmp_path, SETTINGS)
    assert files(tmp_path) == files(whole[0])
    assert progress.num_tokens == whole[1].num_tokens


def test_a_finished_corpus_can_grow(whole, tmp_path):
    make_corpus(TARGET, tmp_path, replace(SETTINGS, num_tokens=100))
    before = files(tmp_path)
    make_corpus(TARGET, tmp_path, SETTINGS)
    assert files(tmp_path).items() >= before.items()
    assert files(tmp_path) == files(whole[0])


def test_a_whole_corpus_is_counted_and_left_alone(whole):
    before, reported = files(whole[0]), []
    progress = make_corpus(TARGET, whole[0], SETTINGS, reported.append)
    assert files(whole[0]) == before
    assert len(reported) == len(shards(whole[0]))
    assert reported[-1] == progress == replace(whole[1], dropped={})


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        (TARGET, replace(SETTINGS, max_answer_tokens=9), "max_answer_tokens is 12, not 9"),
        (replace(TARGET, name="other"), SETTINGS, "target is toy, not other"),
    ],
)
def test_a_corpus_made_in_another_way_is_not_continued(whole, target, settings, message):
    with pytest.raises(MlxspecError, match=message):
        make_corpus(target, whole[0], settings)


@pytest.mark.parametrize("content", ["{", "3"])
def test_settings_that_say_nothing_are_refused(tmp_path, content):
    (tmp_path / "corpus.json").write_text(content)
    with pytest.raises(MlxspecError, match="cannot be read"):
        make_corpus(TARGET, tmp_path, SETTINGS)


def test_another_prompt_file_is_noticed(tmp_path):
    settings = replace(SETTINGS, num_tokens=20, prompts=prompts_file(tmp_path, ["abc"]))
    make_corpus(TARGET, tmp_path / "out", settings)
    prompts_file(tmp_path, ["abd"])
    with pytest.raises(MlxspecError, match="prompts is"):
        make_corpus(TARGET, tmp_path / "out", settings)


def test_the_settings_are_readable(whole):
    content = json.loads((whole[0] / "corpus.json").read_text())
    assert content["target"] == "toy"
    assert content["temperatures"] == [1.0, 1.5]
    assert "num_tokens" not in content


def test_the_files_say_what_is_held_out(whole):
    made = corpus(whole[0])
    assert [one.is_heldout for one in made] == [is_heldout(one, 0.3) for one in made]
    assert {one.is_heldout for one in made} == {True, False}
    assert whole[1].num_heldout == sum(one.is_heldout for one in made)


# ---- what cannot be done -------------------------------------------------------------------


def test_a_model_that_says_nothing_worth_keeping_is_refused(tmp_path):
    with pytest.raises(MlxspecError, match=r"all 8 conversations .*unfinished"):
        make_corpus(
            TARGET, tmp_path, replace(SETTINGS, max_prompt_tokens=2, seed=3, greedy_share=1)
        )


def test_a_model_without_a_template_is_refused_before_anything_is_written(tmp_path):
    class Plain(ToyTokenizer):
        def render_chat(self, messages):
            raise UnsupportedOperationError("no chat template")

    with pytest.raises(UnsupportedOperationError):
        make_corpus(replace(TARGET, tokenizer=Plain()), tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()


# ---- the split, the settings and the memory --------------------------------------------------

SIZES = {"batch_size": 4, "max_answer_tokens": 12, "max_prompt_tokens": 10}


def conversation_of(tokens, mask):
    return Conversation(np.array(tokens, np.int32), np.array(mask, np.uint8), False)


def test_what_follows_the_first_prompt_does_not_decide_the_split():
    for first in range(40):
        prompt = [first, 7, 3]
        answers = ([1], [2, 3], [4, 5, 6])
        sides = {
            is_heldout(conversation_of(prompt + answer, [0] * 3 + [1] * len(answer)), 0.5)
            for answer in answers
        }
        assert len(sides) == 1


def test_the_split_never_changes():
    """The SHA-256 of the prompt 1, 2, 3 as little-endian int32 begins with 0x46."""
    one = conversation_of([1, 2, 3, 4], [0, 0, 0, 1])
    limit = 0x4636993D3E1DA4E9 / 2**64
    assert not is_heldout(one, limit)
    assert is_heldout(one, limit + 1e-9)


def test_the_share_held_out_is_the_one_asked_for():
    made = [
        conversation_of([first, second, 1], [0, 0, 1])
        for first in range(60)
        for second in range(60)
    ]
    assert sum(is_heldout(one, 0.05) for one in made) / 3600 == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(
    "wrong",
    [
        {"greedy_share": 1.5},
        {"second_turn_share": -0.1},
        {"heldout_share": 2},
        {"num_tokens": 0},
        {"batch_size": 0},
        {"tries_per_shard": 0},
        {"max_answer_tokens": 0},
        {"max_prompt_tokens": 1},
        {"seed": -1},
    ],
)
def test_a_wrong_setting_is_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DataSettings(**wrong)


def test_memory_is_weights_and_places_and_logits():
    settings = DataSettings(**SIZES, second_turn_share=0.0)
    # 3 template tokens, 10 asked, 12 answered: within the first 256 rows of 2 layers, keys and
    # values, 1 head of 32 float32; per place 4 times 24 float32 logits. One place beside those of
    # the batch, where prompts are read.
    places = (4 + 1) * (256 * 2 * 2 * 32 * 4 + 4 * 24 * 4)
    assert estimate_memory(TARGET, settings) == TARGET.model.nbytes + places


def test_long_prompts_of_a_file_need_more_memory(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a" * 300 + "\nb\n")
    with_file, without = (DataSettings(**SIZES, prompts=prompts) for prompts in (path, None))
    more = estimate_memory(TARGET, with_file) - estimate_memory(TARGET, without)
    assert more == (4 + 1) * 256 * 2 * 2 * 32 * 4
