"""Choosing by measured speed: who wins, who drops out, when it is over, and what is kept."""

import json

import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafting import auto, measured
from mlxspec.drafting.probe import Probe, best_wired, probe, trials_of
from mlxspec.measure.trial import PROMPTS, Trial, run_trial
from tests.support.adversaries import AlwaysRight, AlwaysWrong
from tests.support.tiny import ToyTokenizer, make_engine, tiny_model
from tests.support.truth import Target

# ---- the race --------------------------------------------------------------------------------


class Race:
    """Candidates of a known speed, and a clock that their trials move on."""

    def __init__(self, speeds, tokens=48):
        self.speeds = speeds
        self.tokens = tokens
        self.now = self.least = 0.0
        self.trials = []

    def run(self, name, number, max_seconds):
        speed = self.speeds[name]
        speed = speed[number] if isinstance(speed, list) else speed
        seconds = max(min(self.tokens / speed, max_seconds), self.least)
        self.now += seconds
        self.trials.append((number, name))
        return Trial(tokens=round(speed * seconds), seconds=seconds)

    def measure(self, **options):
        return auto.measure(list(self.speeds), self.run, clock=lambda: self.now, **options)

    def ran(self, number):
        return [name for trial, name in self.trials if trial == number]


def test_the_fastest_over_all_prompts_wins():
    race = Race({"early": [110, 60, 60, 60], "steady": [100] * 4})
    assert auto.fastest(race.measure()) == "steady"


def test_who_is_clearly_slower_writes_to_one_prompt_only():
    race = Race({"slow": 50, "fast": 100, "close": 95})
    race.measure()
    assert race.ran(0) == ["slow", "fast", "close"]
    assert race.ran(1) == race.ran(3) == ["fast", "close"]


def test_a_clear_winner_ends_the_race():
    race = Race({"slow": 50, "fast": 100})
    assert race.measure() == {"slow": 50.0, "fast": 100.0}
    assert len(race.trials) == 2


def test_everybody_has_written_to_the_first_prompt_before_time_is_up():
    race = Race({"a": 0.9, "b": 1.0, "c": 0.95})
    race.measure(max_seconds=6.0)
    assert race.ran(0) == ["a", "b", "c"]


@pytest.mark.parametrize("speed", [0.5, 5.0, 50.0])
def test_the_time_is_used_and_kept(speed):
    race = Race(dict.fromkeys("abcdefg", speed), tokens=1000)
    race.measure(max_seconds=15.0)
    assert 8.0 < race.now <= 15.01


def test_where_every_trial_takes_too_long_those_named_first_are_compared():
    race = Race({"none": 1.0, "pool": 2.0, "late": 9.0})
    race.least = 10.0  # seconds that a trial takes at least
    assert race.measure(max_seconds=15.0) == {"none": 1.0, "pool": 2.0}
    assert race.now == 20.0


def test_a_prompt_that_only_some_wrote_to_does_not_count():
    race = Race({"a": [100, 1000], "b": [99, 1000], "c": [98, 1000]})
    race.least = 4.0
    assert race.measure(max_seconds=15.0) == {"a": 100.0, "b": 99.0, "c": 98.0}
    assert race.ran(1) == ["a"]


def test_of_equal_speeds_the_first_named_wins():
    assert auto.fastest(Race({"none": 10, "pool": 10}).measure()) == "none"


# ---- what is kept ----------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_was_kept_is_recalled_by_its_key(home):
    measured.store("one", {"drafter": "pool"})
    measured.store("two", {"drafter": "none"})
    measured.store("one", {"drafter": "table"})
    assert measured.load("one") == {"drafter": "table"}
    assert measured.load("two") == {"drafter": "none"}
    assert measured.load("three") is None
    assert [path.name for path in home.iterdir()] == ["measured.json"]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"one": 3}', "\udcff"])
def test_a_damaged_file_is_as_good_as_none(home, content):
    home.mkdir()
    (home / "measured.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert measured.load("one") is None
    measured.store("one", {"drafter": "pool"})
    assert json.loads((home / "measured.json").read_text()) == {"one": {"drafter": "pool"}}


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_memory(home):
    home.write_text("a file where the folder should be")
    measured.store("one", {"drafter": "pool"})
    assert measured.load("one") is None


# ---- trials and probe ------------------------------------------------------------------------

MODEL = tiny_model()


class SaysThree(ToyTokenizer):
    """Every prompt is the same three tokens."""

    def encode(self, text):
        return [3, 7, 1]


TEXT = [3, 7, 1, *Target(MODEL).greedy([3, 7, 1], 16)]


def engine_and_text():
    return make_engine(MODEL, NoDrafter(), tokenizer=SaysThree()), TEXT


def short_trials(engine):
    return lambda drafter, prompt, max_seconds: run_trial(
        engine, drafter, prompt, max_tokens=8, num_draft_tokens=1
    )


def test_a_trial_counts_tokens_and_drafts_whose_first_token_was_kept():
    engine, text = engine_and_text()
    trial = run_trial(engine, AlwaysRight(text), "x", max_tokens=13, num_draft_tokens=3)
    assert (trial.tokens, trial.rounds, trial.hits) == (13, 3, 3)  # 4 + 4 + 4, and 1 undrafted
    assert trial.seconds > 0
    wrong = run_trial(engine, AlwaysWrong(text), "x", max_tokens=13)
    assert (wrong.tokens, wrong.rounds, wrong.hits) == (13, 12, 0)


def test_a_trial_gives_the_engine_its_drafter_back_even_after_an_error():
    engine, text = engine_and_text()
    usual = engine.drafter
    run_trial(engine, AlwaysRight(text), "x", max_tokens=4)
    assert engine.drafter is usual
    with pytest.raises(ValueError, match="drafter must be a drafter"):
        run_trial(engine, object(), "x", max_tokens=4)
    assert engine.drafter is usual


def test_a_trial_whose_time_is_up_ends_with_the_round():
    engine, _ = engine_and_text()
    ticks = iter(range(100))
    trial = run_trial(
        engine, NoDrafter(), "x", max_tokens=50, max_seconds=4.5, clock=lambda: next(ticks)
    )
    assert 2 <= trial.tokens <= 7


def test_a_prompt_longer_than_the_context_is_cut():
    engine = make_engine(tiny_model(max_position_embeddings=16), NoDrafter())
    engine.tokenizer.encode = lambda text: [5] * 40
    assert run_trial(engine, NoDrafter(), PROMPTS[0], max_tokens=8).tokens == 8


def test_the_probe_of_a_sound_head_is_told_from_that_of_a_badly_wired_one():
    engine, text = engine_and_text()
    run = short_trials(engine)
    right, wrong = probe(AlwaysRight(text), run), probe(AlwaysWrong(text), run)
    assert (right.acceptance_rate, right.is_wired) == (1.0, True)
    assert (wrong.acceptance_rate, wrong.is_wired) == (0.0, False)
    assert (right.rounds, wrong.rounds) == (2 * 4, 2 * 7)  # two prompts, two or one token a round


def test_of_two_ways_to_wire_a_head_the_one_that_drafts_better_is_kept():
    engine, text = engine_and_text()
    wrong, right = AlwaysWrong(text), AlwaysRight(text)
    for ways in ([wrong, right], [right, wrong]):
        best, result = best_wired(ways, short_trials(engine))
        assert ways[best] is right
        assert result.acceptance_rate == 1.0


def test_the_probe_drafts_one_token_a_round_and_keeps_its_time():
    engine, text = engine_and_text()
    trial = trials_of(engine)(AlwaysRight(text), "x", 0.0)
    assert (trial.tokens, trial.rounds, trial.hits) == (2, 1, 1)


def test_the_probe_states_its_figure():
    assert Probe(0.25, 64).describe() == "25% of 64 first draft tokens accepted"
