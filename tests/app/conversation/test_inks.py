"""What each ink says of a token."""

import pytest

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import INKS, next_ink

BY_NAME = {ink.name: ink for ink in INKS}


@pytest.mark.parametrize(
    ("ink", "kind", "p", "q", "source", "style"),
    [
        *(
            ("confidence", "accepted", p, None, "", f"step-{step}")  # the surer, the quieter
            for step, probs in enumerate([(1, 0.9), (0.89, 0.7), (0.69, 0.5), (0.3,), (0.29, 0)], 1)
            for p in probs
        ),
        ("confidence", "accepted", None, None, "", "plain"),
        ("surprise", "accepted", None, None, "", "plain"),
        ("surprise", "accepted", 0.5, None, "", "plain"),
        ("surprise", "accepted", 0.5, 0.0, "", "plain"),
        ("surprise", "accepted", 0.5, 0.5, "", "plain"),
        ("surprise", "accepted", 0.3, 0.5, "", "plain"),
        ("surprise", "accepted", 0.2, 0.5, "", "over"),  # the drafter was surer than the target
        ("surprise", "accepted", 0.05, 0.5, "", "far-over"),
        ("surprise", "accepted", 0.5, 0.2, "", "under"),
        ("surprise", "accepted", 0.5, 0.05, "", "far-under"),
        ("surprise", "corrected", 0.9, 0.1, "", "plain"),
        ("drafter", "accepted", None, None, "", "plain"),
        ("drafter", "accepted", None, None, "suffix", "text"),
        ("drafter", "accepted", None, None, "table", "text"),
        ("drafter", "accepted", None, None, "eagle3", "head"),
        ("drafter", "accepted", None, None, "exit", "head"),
        ("drafter", "accepted", None, None, "model", "model"),
        ("drafter", "corrected", None, None, "table", "plain"),
        ("exceptions", "accepted", None, None, "", "plain"),
        ("exceptions", "corrected", None, None, "", "corrected"),
    ],
)
def test_a_style_tells_what_the_ink_is_for(ink, kind, p, q, source, style):
    assert BY_NAME[ink].style_of(Span("x", kind, 1, p, q, source)) == style


def test_f2_goes_through_all_of_them_and_begins_anew():
    ink, seen = INKS[0], []
    for _ in INKS:
        seen.append(ink.name)
        ink = next_ink(ink)
    assert ink is INKS[0]
    assert seen == ["provenance", "exceptions", "confidence", "surprise", "drafter", "off"]
