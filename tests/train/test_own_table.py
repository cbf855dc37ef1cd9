"""A table of the target's own text: written in steps, judged on held-out text, kept if better."""

from itertools import count

import numpy as np
import pytest

from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table
from mlxspec.drafters.table.rows import extend
from mlxspec.drafters.table.seed_table import is_used_with
from mlxspec.errors import MlxspecError
from mlxspec.loading.heads.file import drafters_for
from mlxspec.train import heads, own_table
from mlxspec.train.data.corpus import Conversation, DataSettings, load_corpus, save_corpus
from mlxspec.train.evaluate import count_along
from mlxspec.train.own_table import make_own_table
from tests.support.adversaries import AlwaysRight, AlwaysWrong
from tests.support.toy_chat import toy_target
from tests.support.truth import Target

TARGET = toy_target()
VOCAB = TARGET.config.vocab_size
SETTINGS = DataSettings(
    batch_size=3, max_answer_tokens=12, max_prompt_tokens=10, tries_per_shard=4, heldout_share=0.3
)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
NEVER = 1e9


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(own_table, "SETTINGS", SETTINGS)
    for module in (own_table, heads):  # the toy's tokenizer has no vocabulary to make one of
        monkeypatch.setattr(module, "fingerprint", lambda *_: "toy")
    return tmp_path / "home"


def making(seconds, clock=None):
    """The making of a table, by a clock that goes on a second at each look."""
    return make_own_table(TARGET, seconds, clock=clock or count().__next__)


def finish(steps):
    """Every progress that was told, and the verdict."""
    *told, verdict = steps
    return told, verdict


def own_folder(home):
    (folder,) = home.rglob("own-*")
    return folder


def write(num_tokens):
    """Let the model write some tokens more, and stop it; return the last progress."""
    steps = making(NEVER)
    enough = next(steps).num_tokens + num_tokens
    last = next(progress for progress in steps if progress.num_tokens >= enough)
    steps.close()
    return last


def leave_text(home, conversations):
    """Put a text where the next table of the model finds it."""
    steps = making(NEVER)
    next(steps)
    steps.close()
    save_corpus(own_folder(home) / "corpus-00000.safetensors", conversations)


def going_round(number, step, *, is_heldout):
    """Tokens of 20 in a circle; no token comes twice."""
    tokens = np.array([(number + step * place) % 20 for place in range(20)], np.int32)
    return Conversation(tokens, np.array([0] * 4 + [1] * 16, np.uint8), is_heldout)


def circles(*, heldout_step=1):
    seen = [going_round(number, 1, is_heldout=False) for number in range(20)]
    return [*seen, *(going_round(number, heldout_step, is_heldout=True) for number in range(5))]


# ---- forwards along a stored text --------------------------------------------------------------


@pytest.mark.parametrize(
    ("drafter", "length", "forwards"),
    [(AlwaysRight, 20, 4), (AlwaysRight, 21, 5), (AlwaysWrong, 20, 20)],
)
def test_a_stored_text_takes_the_forwards_of_real_decoding(drafter, length, forwards):
    reply = Target(TARGET.model).greedy(PROMPT, length)
    full = [*PROMPT, *reply, 0, 0, 0, 0, 0]
    assert count_along(drafter(full), PROMPT, reply, 4) == (length, forwards)


def test_a_drafter_learns_along_a_stored_text():
    reply = [5, 6, 7, 8] * 8
    assert count_along(TableDrafter(), [1], reply[:4], 3) == (4, 4)
    num_tokens, forwards = count_along(TableDrafter(), [1], reply, 3)
    assert num_tokens == 32
    assert forwards <= 5 + 27 / 3


# ---- writing in steps --------------------------------------------------------------------------


def test_complete_conversations_are_kept_when_it_is_stopped(home):
    last = write(200)
    kept = load_corpus(own_folder(home), VOCAB)
    assert sum(len(one.tokens) for one in kept) == last.num_tokens
    assert {one.is_heldout for one in kept} == {True, False}


def test_a_second_run_adds_to_the_text_of_the_first(home):
    assert write(100).num_tokens + 150 <= (last := write(150)).num_tokens
    kept = load_corpus(own_folder(home), VOCAB)
    assert sum(len(one.tokens) for one in kept) == last.num_tokens
    assert len({one.digest for one in kept}) == len(kept)


def test_only_the_time_of_steps_counts(home):
    now = 0.0

    def clock():
        nonlocal now
        now += 1
        return now

    leave_text(home, circles())
    shares = []
    for told in making(4, clock):
        shares.append(getattr(told, "share", 1.0))
        now += 1000  # the chat talks between two steps
    assert shares[:4] == [0.25, 0.5, 0.75, 1.0]
    assert set(shares[4:]) == {1.0}


def test_too_little_text_gives_no_table_and_is_kept(home):
    leave_text(home, circles()[:23])
    with pytest.raises(MlxspecError, match=r"23 conversations .* run it again"):
        finish(making(1))
    assert len(load_corpus(own_folder(home), VOCAB)) == 23
    assert not drafters_for("toy")


def test_a_model_whose_conversations_are_all_dropped_ends_in_time(home, monkeypatch):
    full = TARGET.config.max_position_embeddings
    settings = DataSettings(max_prompt_tokens=full, batch_size=2, tries_per_shard=4)
    monkeypatch.setattr(own_table, "SETTINGS", settings)
    with pytest.raises(MlxspecError, match="0 conversations"):
        finish(making(5))


# ---- the verdict -------------------------------------------------------------------------------


def test_a_better_table_is_found_as_the_trained_one_of_its_target(home):
    leave_text(home, circles())
    verdict = finish(making(1))[1]
    # 9 + 7 tokens in two forwards; without a table no token is drafted, since none comes twice
    assert str(verdict) == "drafts of this model: 8.00 tokens a forward, before 1.00"
    file = drafters_for("toy")["table"]
    assert file.card["target"]["name"] == "toy"
    assert is_used_with(file)  # the seed table predicts where so little text does not
    assert load_table(file.path, VOCAB, tokenizer="toy")[0].get(extend(0, 7)).masses.keys() == {8}


def test_a_table_that_is_no_better_is_dropped_and_says_so(home):
    leave_text(home, circles(heldout_step=19))  # backwards
    verdict = finish(making(1))[1]
    assert "dropped" in str(verdict)
    assert str(verdict).count("1.00") == 2
    assert not drafters_for("toy")


def test_the_present_table_stays_where_a_new_one_is_no_better(home):
    leave_text(home, circles())
    finish(making(1))
    path = drafters_for("toy")["table"].path
    before = path.stat().st_mtime_ns
    verdict = finish(making(1))[1]
    assert verdict.before == verdict.after == 8.0
    assert path.stat().st_mtime_ns == before
