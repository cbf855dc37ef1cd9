"""Ages in words."""

from datetime import datetime

import pytest

from mlxspec_app.text.chat_labels import ago

NOW = datetime(2026, 3, 12, 15, 30).timestamp()
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (59 * MINUTE, "59 minutes ago"),
        (HOUR, "1 hour ago"),
        (23 * HOUR, "23 hours ago"),
        (25 * HOUR, "yesterday"),
        (2 * DAY, "2 days ago"),
        (6 * DAY, "6 days ago"),
        (7 * DAY, "5 Mar"),
        (71 * DAY, "31 Dec 2025"),
    ],
)
def test_an_age_is_told_in_the_largest_unit_that_fits(seconds, words):
    assert ago(NOW - seconds, NOW) == words
