"""The split of a corpus, its memory, and invalid settings."""

import numpy as np
import pytest

from mlxspec.train.data.corpus import Conversation, DataSettings
from mlxspec.train.data.making import estimate_memory, is_heldout
from tests.support.toy_chat import toy_target

TARGET = toy_target()
SIZES = {"batch_size": 4, "max_answer_tokens": 12, "max_prompt_tokens": 10}


def conversation(tokens, mask):
    return Conversation(np.array(tokens, np.int32), np.array(mask, np.uint8), False)


def test_what_follows_the_first_prompt_does_not_decide_the_split():
    for first in range(40):
        prompt = [first, 7, 3]
        answers = ([1], [2, 3], [4, 5, 6])
        sides = {
            is_heldout(conversation(prompt + answer, [0] * 3 + [1] * len(answer)), 0.5)
            for answer in answers
        }
        assert len(sides) == 1


def test_the_split_never_changes():
    """The SHA-256 of the prompt 1, 2, 3 as little-endian int32 begins with 0x46."""
    one = conversation([1, 2, 3, 4], [0, 0, 0, 1])
    limit = 0x4636993D3E1DA4E9 / 2**64
    assert not is_heldout(one, limit)
    assert is_heldout(one, limit + 1e-9)


def test_the_share_held_out_is_the_one_asked_for():
    made = [
        conversation([first, second, 1], [0, 0, 1]) for first in range(60) for second in range(60)
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


# ---- memory --------------------------------------------------------------------------------


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
