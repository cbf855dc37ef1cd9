"""What each ink says of a token."""

import pytest

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import INKS, next_ink

BY_NAME = {ink.name: ink for ink in INKS}


def style(name, kind="accepted", p=None, q=None, source=""):
    return BY_NAME[name].style_of(Span("x", kind, 1, p, q, source))


@pytest.mark.parametrize(
    ("p", "expected"),
    [(1.0, 1), (0.9, 1), (0.89, 2), (0.7, 2), (0.69, 3), (0.5, 3), (0.3, 4), (0.29, 5), (0.0, 5)],
)
def test_confidence_is_louder_the_less_sure_the_target_was(p, expected):
    assert style("confidence", p=p) == f"step-{expected}"


def test_what_is_not_known_stays_plain():
    assert style("confidence") == style("surprise") == style("drafter") == "plain"
    assert style("surprise", p=0.5) == style("surprise", p=0.5, q=0.0) == "plain"


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        (0.5, 0.5, "plain"),
        (0.3, 0.5, "plain"),
        (0.2, 0.5, "over"),
        (0.05, 0.5, "far-over"),
        (0.5, 0.2, "under"),
        (0.5, 0.05, "far-under"),
    ],
)
def test_surprise_tells_by_how_much_the_drafter_was_off(p, q, expected):
    assert style("surprise", p=p, q=q) == expected


def test_surprise_says_nothing_of_the_targets_own_tokens():
    assert style("surprise", "corrected", 0.9, 0.1) == "plain"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("suffix", "text"),
        ("table", "text"),
        ("eagle3", "head"),
        ("exit", "head"),
        ("model", "model"),
    ],
)
def test_drafters_are_told_apart_by_what_they_draft_from(source, expected):
    assert style("drafter", source=source) == expected


def test_a_token_of_the_target_has_no_drafter():
    assert style("drafter", "corrected", source="table") == "plain"


def test_f2_goes_through_all_of_them_and_begins_anew():
    ink, seen = INKS[0], []
    for _ in INKS:
        seen.append(ink.name)
        ink = next_ink(ink)
    assert ink is INKS[0]
    assert seen == ["provenance", "exceptions", "confidence", "surprise", "drafter", "off"]
