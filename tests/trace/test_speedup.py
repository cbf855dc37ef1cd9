"""The speed-up of a reply from its own rounds, on a device whose speed changes between rounds."""

import math
import random

import pytest

from mlxspec.trace.speedup import RoundCosts, TimedRound, speedup

PLAIN_MS = 20.0
LOADS = ("steady", "drift", "sudden", "comes and goes")
ONE_PLAIN_IN = 11


def load_of(kind, rng):
    """How many times slower the device is after some milliseconds."""
    moment, period, phase = rng.uniform(300, 2500), rng.uniform(150, 1500), rng.random()
    return {
        "steady": lambda ms: 1.0,
        "drift": lambda ms: 1.0 + ms / 4000,
        "sudden": lambda ms: 1.0 if ms < moment else 3.0,
        "comes and goes": lambda ms: 3.0 if (ms / period + phase) % 2 < 1 else 1.0,
    }[kind]


def draft_ms(num_nodes):
    """A cost with a step, which is no line of the nodes."""
    return 22.0 + 2.0 * num_nodes + 4.0 * (num_nodes >= 4)


def reply(rng, kind, noise, num_tokens, hit=0.7):
    """The rounds of a made-up reply, and the speed-up over plain decoding under the same load."""
    load, rounds, now, plain, left = load_of(kind, rng), [], 0.0, 0.0, num_tokens
    since = rng.randrange(ONE_PLAIN_IN)
    while left:
        since += 1
        n = rng.randint(1, 7) if since % ONE_PLAIN_IN else 0
        tokens = 1
        while tokens <= n and rng.random() < hit:
            tokens += 1
        tokens, slower = min(tokens, left), load(now)
        ms = slower * (draft_ms(n) if n else PLAIN_MS) * math.exp(rng.gauss(0, noise))
        rounds.append(TimedRound(n, tokens, ms))
        plain, now, left = plain + tokens * slower * PLAIN_MS, now + ms, left - tokens
    return rounds, plain / now


def told(seed, kind, noise, num_tokens, num_earlier):
    """The figure of a reply after some others, or None, and the true one."""
    rng, costs = random.Random(seed), RoundCosts()
    for _ in range(num_earlier):
        costs = costs.after(reply(rng, kind, noise, 150)[0])
    rounds, true = reply(rng, kind, noise, num_tokens)
    found = speedup(rounds, costs.after(rounds))
    return (found.ratio if found and found.is_sure else None), true


def errors(kind, noise, num_tokens, num_earlier, num_replies=12):
    """The errors of the figures that are told, as shares."""
    both = [told(seed, kind, noise, num_tokens, num_earlier) for seed in range(num_replies)]
    return [abs(ratio / true - 1) for ratio, true in both if ratio is not None]


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_a_speed_up_is_within_5_percent_of_the_true_one_or_is_not_told(kind, noise):
    cases = [(30, 0), (60, 0), (150, 0), (400, 0), (30, 4), (60, 4), (150, 4), (400, 4)]
    found = [error for case in cases for error in errors(kind, noise, *case)]
    assert sum(error > 0.05 for error in found) <= max(1, 0.02 * len(found))
    assert max(found, default=0.0) < 0.08


@pytest.mark.parametrize("kind", ["steady", "drift", "sudden"])
def test_on_a_quiet_machine_a_long_reply_has_a_speed_up_and_a_short_one_after_others(kind):
    assert len(errors(kind, 0.03, 400, 0)) == 12
    assert len(errors(kind, 0.03, 30, 4)) == 12


def test_one_measurement_at_an_idle_moment_is_wrong_by_up_to_three_times():
    worst = 1.0
    for seed in range(12):
        rounds, true = reply(random.Random(seed), "sudden", 0.03, 400)
        took = sum(round.ms for round in rounds)
        idle = 400 * PLAIN_MS / took
        worst = max(worst, true / idle)
    assert worst > 2.5


def test_a_plain_round_that_was_begun_ahead_is_compared_and_the_one_before_it_is_not():
    """Plain decoding looks ahead; the first plain round after a drafted one cannot."""
    drafted = [TimedRound(3, 2, 30.0)] * 7
    rounds = [*drafted, TimedRound(0, 1, 26.0), TimedRound(0, 1, 20.0)] * 6 + drafted
    costs = RoundCosts().after(rounds)
    assert costs.ratios == pytest.approx([math.log(20 / 30)] * 6)
    assert speedup(rounds, costs).ratio == pytest.approx(
        (49 * 2 * 20 + 6 * 46) / (49 * 30 + 6 * 46)
    )


def test_what_a_grammar_forces_is_no_gain():
    rounds = [TimedRound(3, 2, 30.0), TimedRound(0, 1, 20.0), *[TimedRound(3, 2, 30.0)] * 6] * 6
    forced = [*rounds, *[TimedRound(-1, 1, 25.0)] * 20]
    free, most = (speedup(each, RoundCosts().after(each)).ratio for each in (rounds, forced))
    took = sum(round.ms for round in rounds)
    assert most == pytest.approx((free * took + 20 * 25) / (took + 20 * 25))
