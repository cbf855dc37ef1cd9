"""A terminal that changes its size quickly, as one does that is drawn larger with the mouse."""

import pytest
from textual.events import Resize
from textual.geometry import Size

from mlxspec_app.screens.steady import SteadyScreen
from tests.support.app_driver import chat
from tests.support.race_driver import racing

SMALL, LARGE = Size(60, 20), Size(140, 45)


@pytest.mark.parametrize("open_app", [chat, racing])
async def test_a_size_that_is_told_late_does_not_come_back(open_app, monkeypatch):
    laid_out = []
    lay_out = SteadyScreen._screen_resized

    def note(screen, size):
        laid_out.append(size)
        assert len(laid_out) < 50, "two sizes bring each other back"
        if laid_out == [SMALL]:  # the terminal grows again while this is laid out
            grow(screen)
        lay_out(screen, size)

    def grow(screen):
        screen.app._size = LARGE
        screen.post_message(Resize(LARGE, LARGE))
        screen.call_later(lambda: None)  # or the size that the layout tells would replace it

    async with open_app() as driver:
        monkeypatch.setattr(SteadyScreen, "_screen_resized", note)
        app = driver.pilot.app
        app._size = SMALL
        app.screen.post_message(Resize(SMALL, SMALL))
        for _ in range(5):
            await driver.pilot.pause(0)
        assert app.screen.size == LARGE
        assert laid_out.count(SMALL) == 1
