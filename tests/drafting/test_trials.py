"""The trials of which measurements are made, and the probe of a head."""

import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafting.heads import probe
from mlxspec.measure.trial import PROMPTS, short_trial
from tests.support.adversaries import AlwaysRight, AlwaysWrong
from tests.support.tiny import ToyTokenizer, make_engine, tiny_model
from tests.support.truth import Target

MODEL = tiny_model()


class SaysThree(ToyTokenizer):
    """Every prompt is the same three tokens."""

    def encode(self, text):
        return [3, 7, 1]


TEXT = [3, 7, 1, *Target(MODEL).greedy([3, 7, 1], 16)]


def engine_and_text():
    return make_engine(MODEL, NoDrafter(), tokenizer=SaysThree()), TEXT


def test_a_trial_counts_tokens_and_drafts():
    engine, text = engine_and_text()
    trial = short_trial(engine, "x", AlwaysRight(text), max_tokens=13, num_draft_tokens=3)
    figures = [trial.stats[name] for name in ("generated_tokens", "rounds", "accepted_at_depth")]
    assert figures == [13, 3, [3, 3, 3]]  # 4 + 4 + 4, and 1 undrafted
    assert list(trial.tokens) == text[3:16]
    assert (trial.forwards, trial.rows) == (4, 4 + 9)
    assert trial.stats["generation_tps"] > 0
    wrong = short_trial(engine, "x", AlwaysWrong(text), max_tokens=13)
    assert (wrong.tokens, wrong.stats["accepted"]) == (trial.tokens, 0)


def test_a_trial_gives_the_engine_its_drafter_back_even_after_an_error():
    engine, text = engine_and_text()
    usual = engine.drafter
    short_trial(engine, "x", AlwaysRight(text), max_tokens=4)
    assert engine.drafter is usual
    with pytest.raises(ValueError, match="drafter must be a drafter"):
        short_trial(engine, "x", object(), max_tokens=4)
    assert engine.drafter is usual


def test_a_trial_whose_time_is_up_ends_with_the_round():
    engine, _ = engine_and_text()
    ticks = iter(range(100))
    trial = short_trial(
        engine, "x", NoDrafter(), max_tokens=50, seconds=4.5, clock=lambda: next(ticks)
    )
    assert 2 <= len(trial.tokens) <= 7


def test_a_prompt_longer_than_the_context_is_cut():
    engine = make_engine(tiny_model(max_position_embeddings=16), NoDrafter())
    engine.tokenizer.encode = lambda text: [5] * 40
    assert len(short_trial(engine, PROMPTS[0], NoDrafter(), max_tokens=8).tokens) == 8


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("mlxspec.drafting.heads._TOKENS_PER_PROMPT", 8)


def test_the_probe_tells_a_sound_head_from_a_badly_wired_one_and_keeps_its_time(short):
    engine, text = engine_and_text()
    right, wrong = probe(engine, AlwaysRight(text)), probe(engine, AlwaysWrong(text))
    assert right == (1.0, 2 * 4)  # two prompts, two tokens a round
    assert wrong == (0.0, 2 * 7)
    assert probe(engine, AlwaysRight(text), max_seconds=0.0).rounds == 2  # one for each prompt
