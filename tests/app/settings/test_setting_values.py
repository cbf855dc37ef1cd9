"""Single settings: what they are, what they become, and what was typed for them."""

import pytest

from mlxspec_app.settings.file import Settings, value_of, with_value
from mlxspec_app.settings.rules import rules


@pytest.mark.parametrize(
    ("name", "value"),
    [("ink", "off"), ("sampling.top_p", 0.5), ("keys.chat.stop", "f9"), ("frame_rate", 20)],
)
def test_a_value_that_was_set_is_found_and_can_be_taken_back(name, value):
    changed = with_value(Settings(), name, value)
    assert changed != Settings()
    assert value_of(changed, name) == value
    assert with_value(changed, name, None) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sampling.top_p", " 0.5 ", 0.5),
        ("sampling.temperature", "1", 1.0),
        ("frame_rate", "20", 20),
        ("reduced_motion", "True", True),
        ("model", " ~/smol ", "~/smol"),
    ],
)
def test_a_typed_value_is_read_as_its_kind(name, text, value):
    read = rules()[name].read_typed(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("frame_rate", "2.5"),
        ("frame_rate", "1e9"),
        ("sampling.top_p", "half"),
        ("sampling.temperature", "nan"),
        ("reduced_motion", "yes"),
        ("drafter", "  "),
    ],
)
def test_a_typed_value_that_is_not_allowed_is_refused_in_words(name, text):
    with pytest.raises(ValueError, match="; allowed is "):
        rules()[name].read_typed(text)
