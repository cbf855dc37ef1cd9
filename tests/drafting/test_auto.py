"""What `auto` concludes: interleaved laps on a clock whose noise is given, and stored verdicts."""

from dataclasses import asdict, replace
from random import Random

import pytest

from mlxspec.drafting import auto, measured
from mlxspec.drafting.laps import Evidence, Lap
from mlxspec.drafting.verdict import RETRY_S, DrafterVerdict, conclude
from tests.support.machine import Machine


def verdict_on(machine, before=None, **settings):
    return conclude(machine.laps(**settings), "pool", 100.0, before)


# ---- laps ------------------------------------------------------------------------------------


def test_plain_decoding_is_first_and_last_in_a_lap_and_the_others_take_turns_to_begin():
    machine = Machine({"none": 10, "pool": 10.2, "model": 10.1})
    machine.laps()
    assert machine.ran(0) == ["none", "pool", "model", "none"]
    assert machine.ran(1) == ["none", "model", "pool", "none"]


def test_no_prompt_comes_twice_where_a_drafter_could_copy_its_own_reply():
    machine = Machine({"none": 10, "pool": 10}, tokens=1)
    machine.laps()
    assert machine.trials == [(n, name) for n in range(8) for name in ("none", "pool", "none")]


def test_a_ratio_is_the_median_of_what_was_paired_within_each_lap():
    machine = Machine({"none": 10, "pool": [15, 30, 14, 16, 15, 15, 15, 15]}, tokens=1)
    assert machine.laps().ratios == {"none": 1.0, "pool": 1.5}


def test_a_machine_that_slows_down_evenly_leaves_the_ratios_as_they_are():
    steady = Machine({"none": 10, "pool": 16}, tokens=1).laps()
    slowing = Machine({"none": 10, "pool": 16}, lambda trial: 1.02**trial, tokens=1).laps()
    assert slowing.ratios["pool"] == pytest.approx(steady.ratios["pool"], rel=0.001)
    assert slowing.spread == pytest.approx(1.02**2 - 1)


def test_who_is_clearly_slower_leaves_after_two_laps_and_the_safe_default_stays():
    machine = Machine({"none": 50, "slow": 30, "fast": 100, "close": 98, "pool": 20}, tokens=1)
    machine.laps()
    assert set(machine.ran(1)) == {"none", "slow", "fast", "close", "pool"}
    assert set(machine.ran(2)) == {"none", "fast", "close", "pool"}


def test_a_clear_lead_ends_the_laps_after_the_third():
    machine = Machine({"none": 50, "pool": 100})
    machine.laps()
    assert len(machine.trials) == 3 * 3


@pytest.mark.parametrize("speed", [0.5, 5.0, 50.0])
def test_the_time_is_shared_so_that_three_laps_fit(speed):
    machine = Machine(dict.fromkeys(["none", *"abcdef"], speed), tokens=1000)
    evidence = machine.laps(max_seconds=15.0)
    assert len(evidence.laps) == 3
    assert 12.0 < machine.now <= 15.01


def test_a_lap_that_time_cut_off_does_not_count():
    machine = Machine({"none": 10, "pool": 20}, least=4.0)
    evidence = machine.laps(max_seconds=15.0)
    assert (len(machine.trials), len(evidence.laps)) == (4, 1)


# ---- verdicts --------------------------------------------------------------------------------


def test_the_drafter_that_leads_by_more_than_the_noise_is_taken():
    verdict = verdict_on(Machine({"none": 10, "pool": 14, "model": 20}))
    assert (verdict.drafter, verdict.is_settled) == ("model", True)
    assert verdict.ratios == {"none": 1.0, "pool": 1.4, "model": 2.0}
    assert verdict.speeds == {"none": 10.0, "pool": 14.0, "model": 20.0}
    assert verdict.words == (
        "fastest of 3 on this machine (x the speed in 3 greedy laps: model 2.00, pool 1.40, "
        "none 1.00; spread 0%)"
    )


def test_plain_decoding_is_taken_where_drafts_do_not_pay():
    assert verdict_on(Machine({"none": 10, "pool": 7})).drafter == "none"


@pytest.mark.parametrize("speed", [10.2, 9.2])
def test_a_lead_smaller_than_the_noise_leaves_the_safe_default(speed):
    machine = Machine({"none": 10, "pool": speed}, lambda trial: 1.08 ** (trial % 3 == 0))
    verdict = verdict_on(machine)
    assert (verdict.drafter, verdict.is_settled) == ("pool", True)
    assert verdict.spread == pytest.approx(0.08)


def test_who_is_not_the_fastest_is_not_called_so():
    verdict = verdict_on(Machine({"none": 10, "pool": 10, "model": 10.2}))
    assert (verdict.drafter, verdict.is_settled) == ("pool", True)
    assert verdict.words.startswith("no other is clearly faster on this machine (x the speed in")


def test_laps_that_contradict_each_other_leave_the_verdict_open():
    """Each drafter was slowed down in another lap: the medians are far apart, the pairs are not."""
    speeds = [(10, 19), (18, 19), (10, 10.5)]
    laps = [Lap((9.5, 10.5), {"pool": pool, "model": model}) for pool, model in speeds]
    verdict = conclude(Evidence(laps), "pool", 100.0)
    assert (verdict.ratios["model"], verdict.ratios["pool"]) == (1.9, 1.0)
    assert (verdict.drafter, verdict.is_settled) == ("pool", False)
    assert "model leads in some laps and pool in others" in verdict.words


def test_a_busy_machine_decides_nothing_and_the_safe_default_drafts_until_it_is_measured_again():
    busy = verdict_on(Machine({"none": 10, "pool": 16, "model": 15}, lambda trial: 1 + trial % 2))
    assert (busy.drafter, busy.is_settled) == ("pool", False)
    assert busy.words.endswith("again: equal speeds differed by 100%, the machine is busy")
    assert busy.ratios == busy.speeds == {}
    laps = [Lap((10, 10), {"pool": 12, "model": 19})] * 3
    busy = conclude(Evidence(laps), "pool", 100.0, load="load 20")
    assert (busy.drafter, busy.is_settled, busy.ratios) == ("pool", False, {})
    assert busy.words.endswith("again: the machine is busy (load 20)")
    assert not busy.is_due(100.0 + RETRY_S - 1)
    assert busy.is_due(100.0 + RETRY_S)
    assert busy.is_due(0.0)  # the clock was set back


@pytest.mark.parametrize("seed", range(40))
def test_load_that_comes_and_goes_never_puts_a_slower_drafter_before_pool(seed):
    chance = Random(seed)
    loads = [chance.choice([1, 1, 1, 1.3, 2.5]) for _ in range(200)]
    machine = Machine({"none": 10, "pool": 16, "model": 13}, loads.__getitem__)
    assert verdict_on(machine).drafter == "pool"


def test_a_drafter_that_leads_with_some_prompts_only_does_not_replace_the_default():
    speeds = [20, 8, 20, 8, 20, 8, 20, 20]
    verdict = verdict_on(Machine({"none": 10, "pool": 14, "model": speeds}, tokens=4))
    assert (verdict.drafter, verdict.is_settled) == ("pool", False)
    assert "model leads in some laps and pool in others" in verdict.why


def test_too_little_time_for_three_laps_decides_nothing():
    verdict = verdict_on(Machine({"none": 1, "pool": 2, "model": 9}, least=3.0), max_seconds=15.0)
    assert (verdict.drafter, verdict.is_settled, verdict.laps) == ("pool", False, 1)
    assert verdict_on(Machine({"none": 1, "pool": 2}, least=20.0)).words == (
        "the safe default until it is measured again: time for 0 of 3 laps"
    )


def test_of_a_lap_the_noise_is_what_the_two_plain_replies_differ_by():
    assert Lap((10.0, 12.0), {}).noise == pytest.approx(0.2)
    assert Lap((12.0, 10.0), {"pool": 22.0}).ratios["pool"] == 2.0
    assert Evidence([Lap((1, 1), {}), Lap((1, 3), {}), Lap((1, 1.1), {})]).spread == pytest.approx(
        0.1
    )


# ---- in use ----------------------------------------------------------------------------------

SETTLED = DrafterVerdict("pool", True, "", {"none": 1.0, "pool": 1.6}, {}, 0.02, 3, 50.0)


def after(verdict, *speedups, is_sampled=False):
    for speedup in speedups:
        verdict = verdict.after_reply(speedup, is_sampled=is_sampled)
    return verdict


def test_replies_slower_than_plain_open_the_verdict():
    assert after(SETTLED, 0.8, 0.8, 0.8, 0.8).is_settled
    opened = after(SETTLED, 0.8, 0.8, 2.0, 0.8, 0.8)
    assert (opened.is_settled, opened.is_due(1e9)) == (False, True)
    assert opened.why == "its last 5 replies ran at 0.8x the speed, where 1.6x was measured"


def test_replies_slower_than_another_drafter_was_open_it_too():
    verdict = replace(SETTLED, ratios={"none": 1.0, "pool": 1.6, "model": 1.5})
    assert not after(verdict, *[1.3] * 5).is_settled
    assert after(verdict, *[1.45] * 5).is_settled


def test_replies_drawn_otherwise_than_the_laps_are_compared_with_plain_decoding_alone():
    verdict = replace(SETTLED, ratios={"none": 1.0, "pool": 1.6, "model": 1.5})
    assert after(verdict, *[1.3] * 16, is_sampled=True).is_settled
    opened = after(verdict, *[0.8] * 5, is_sampled=True)
    assert not opened.is_settled
    assert opened.why == "its last 5 replies ran at 0.8x the speed, where 1.6x was measured"
    sampled = replace(verdict, is_sampled=True)
    assert not after(sampled, *[1.3] * 5, is_sampled=True).is_settled
    assert after(sampled, *[1.3] * 16).is_settled


def test_replies_of_both_kinds_are_not_mixed():
    assert after(after(SETTLED, *[0.8] * 4), *[0.8] * 4, is_sampled=True).is_settled


def test_one_slow_reply_in_many_opens_nothing():
    assert after(SETTLED, *[1.5, 0.3, 1.5] * 9).is_settled


def test_the_laps_decide_and_not_the_replies_that_may_come_from_a_busy_hour():
    opened = after(SETTLED, *[0.8] * 5)
    again = verdict_on(Machine({"none": 10, "pool": 16}), opened)
    assert (again.drafter, again.is_settled, again.live) == ("pool", True, ())


def test_each_confirmation_doubles_the_replies_that_open_a_verdict():
    again = verdict_on(Machine({"none": 10, "pool": 16}), after(SETTLED, *[0.8] * 5))
    assert again.num_confirmed == 1
    assert after(again, *[0.8] * 9).is_settled
    assert not after(again, *[0.8] * 10).is_settled
    assert verdict_on(Machine({"none": 10, "pool": 16}), SETTLED).num_confirmed == 0


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    measured.store("here", asdict(SETTLED))
    return auto.Choice("pool", "measured", key="here")


def test_replies_are_stored_and_contradict_until_it_is_measured_again(stored):
    said = [auto.note_reply(stored, 0.8, is_sampled=False) for _ in range(6)]
    words = "drafter pool: its last {} replies ran at 0.8x the speed, where 1.6x was measured"
    assert said == ["", "", "", "", words.format(5), words.format(6)]
    assert auto.stored_verdict("here").live == (0.8,) * 6


def test_replies_of_a_drafter_that_was_asked_for_are_not_stored(stored):
    assert auto.note_reply(auto.Choice("pool", "as requested"), 0.1, is_sampled=False) == ""
    assert auto.note_reply(auto.Choice("model", "", key="here"), 0.1, is_sampled=False) == ""
    assert auto.stored_verdict("here") == SETTLED


@pytest.mark.parametrize(
    "kept",
    [
        {"speeds": {"pool": 20.0, "none": 10.0}},  # what the version before wrote
        {**asdict(SETTLED), "ratios": {"pool": "fast"}},
        {**asdict(SETTLED), "ratios": 3},
        {**asdict(SETTLED), "drafter": 3},
        {**asdict(SETTLED), "more": 3},
        {},
    ],
)
def test_what_is_no_verdict_is_measured_again(stored, kept):
    measured.store("here", kept)
    assert auto.stored_verdict("here") is None
