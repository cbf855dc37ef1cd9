"""A machine whose clock and noise are given: drafters of known speeds are timed on it."""

from mlxspec.drafting.laps import run_laps
from mlxspec.measure.trial import Trial


def trial_of(tokens_per_s):
    """A short trial at a given speed, with no drafts."""
    stats = {"generation_tps": tokens_per_s, "rounds": 0, "accepted": 0}
    return Trial((), 0, 0.0, 0, 1.0, 1, stats=stats)


class Machine:
    """Runs trials at known speeds; load divides them, and the clock moves on with each.

    Args:
        speeds: Tokens/s by drafter: a number, or one for each prompt.
        load: Returns by how much the machine is slowed down, given the number of the trial.
        tokens: Tokens of a whole trial.
        least: Seconds that a trial takes at least.
    """

    def __init__(self, speeds, load=lambda trial: 1.0, tokens=48, least=0.0):
        self.speeds, self.load, self.tokens, self.least = speeds, load, tokens, least
        self.now, self.trials = 0.0, []

    def run(self, name, number, max_seconds):
        speed = self.speeds[name]
        speed = speed[number] if isinstance(speed, list) else speed
        speed /= self.load(len(self.trials))
        seconds = max(min(self.tokens / speed, max_seconds), self.least)
        self.now += seconds
        self.trials.append((number, name))
        return speed

    def laps(self, safe="pool", **settings):
        names = [name for name in self.speeds if name != "none"]
        return run_laps(names, self.run, safe=safe, clock=lambda: self.now, **settings)

    def ran(self, number):
        """Return who wrote to a prompt, in order."""
        return [name for prompt, name in self.trials if prompt == number]
