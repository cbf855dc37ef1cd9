"""The bottom line, for hours: keys that it shows no longer are let go of."""

import gc

from textual.widgets._footer import FooterKey

from mlxspec_app.widgets.chat.key_footer import KeyFooter
from tests.support.app_driver import chat


async def test_keys_that_are_shown_no_longer_are_let_go_of():
    async with chat() as driver:
        footer = driver.screen.query_one(KeyFooter)
        for _ in range(6):
            footer.refresh(recompose=True)
            await driver.settle()
        num_shown = len(footer.query(FooterKey))
        gc.collect()
        num_alive = sum(isinstance(thing, FooterKey) for thing in gc.get_objects())
        assert 0 < num_shown <= num_alive < 4 * num_shown  # those before may still be on their way
