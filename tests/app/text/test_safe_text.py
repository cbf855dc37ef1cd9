"""Text from outside cannot reach the terminal as anything but text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec_app.text.safe_text import safe_line, safe_text, token_label

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(ANY_TEXT)
def test_no_control_character_or_surrogate_is_left(text):
    kinds = {unicodedata.category(char) for char in safe_text(text) if char != "\n"}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
    assert "\n" not in safe_line(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_is_left_alone(text):
    assert safe_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x9b2J", "\ufffd2J"),
        ("bell\a", "bell␇"),
        ("a\rb", "a␍b"),
        ("a\r\nb", "a\nb"),
        ("a\tb", "a    b"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("\ud83d", "\ufffd"),
        ("\U000e0041hidden", "\ufffdhidden"),
        ("\x7f", "␡"),
        ("family 👩\u200d🚀", "family 👩\u200d🚀"),
    ],
)
def test_shows_harmful_characters_as_signs(text, shown):
    assert safe_text(text) == shown


@pytest.mark.parametrize(
    ("text", "label"),
    [("", "…"), (" its", "its"), (" ", "␣"), ("\n\n", "↵↵"), ("\t", "⇥"), ("\x1b", "␛")],
)
def test_names_a_token_in_few_characters(text, label):
    assert token_label(text) == label


@given(ANY_TEXT)
def test_a_label_is_one_short_line(text):
    label = token_label(text)
    assert 0 < len(label) <= 24
    assert "\n" not in label
