"""Drives a race in tests: two runs, a manual clock, and the screen."""

from contextlib import asynccontextmanager

from mlxspec_app.app import MlxspecApp
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.screens.race import RaceLane, RaceScreen
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import Clock, Driver
from tests.support.race_runs import decoded_plainly
from tests.traces import make_fake

TREE = make_fake.tree()
PLAIN = decoded_plainly(TREE)
NUM_TOKENS = sum(len(getattr(event, "emit", ())) for event in TREE)


class RaceDriver(Driver):
    """A running race with its screen."""

    def __init__(self, pilot, race, clock):
        super().__init__(pilot, None, clock)
        self.race = race

    @property
    def texts(self):
        """The text of the last message of each lane, as its widget has it."""
        lanes = [list(lane.query(TokenMessage)) for lane in self.app.screen.query(RaceLane)]
        return [w[-1].text if w else "" for w in lanes]


@asynccontextmanager
async def racing(a=TREE, b=PLAIN, size=(100, 30)):
    clock = Clock()
    race = Race([Track("A", a), Track("B", b)], clock)
    app = MlxspecApp(lambda: RaceScreen(race))
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = RaceDriver(pilot, race, clock)
        await driver.settle()
        yield driver
