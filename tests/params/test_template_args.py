"""Arguments of a chat template: what is typed becomes the value that a template reads."""

import math

import pytest

from mlxspec.params import GenerationParams


def args(value):
    return GenerationParams(chat_template_args=value).chat_template_args


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("3", 3),
        ("0.5", 0.5),
        ("null", None),
        ('"4"', "4"),
        ("low", "low"),
        ("a = b", "a = b"),
        ("", ""),
        ("[1, 2]", [1, 2]),
        ('{"x": {"y": 1}}', {"x": {"y": 1}}),
        ("{x", "{x"),
    ],
)
def test_a_text_has_the_value_that_json_gives_it_and_is_a_text_otherwise(text, value):
    assert args(f"name={text}") == {"name": value}
    assert type(args(f"name={text}")["name"]) is type(value)


def test_several_texts_add_up_and_the_last_of_a_name_counts():
    assert args(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}


def test_a_mapping_is_copied():
    given = {"a": [1]}
    held = args(given)
    given["a"].append(2)
    assert held == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("thinking", "must be NAME=VALUE; got 'thinking'"),
        ("{thinking", "not a JSON object"),
        ("a b=1", "got the name 'a b'"),
        ({1: 2}, "got the name 1"),
        ({"a": math.nan}, "names with JSON values"),
        ({"a": {1, 2}}, "names with JSON values"),
        (3, "got 3 of type int"),
        (["a=1", 2], "of type list"),
    ],
)
def test_what_is_no_argument_is_refused_with_what_is_allowed(value, message):
    with pytest.raises(ValueError, match=f"chat_template_args.*{message}"):
        args(value)
