"""Settings changed by name while a chat runs, and the arguments of a chat template as typed."""

import math
from dataclasses import replace

import pytest

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.params.table import ADJUSTABLE, adjustable, adjusted


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("temp", "0.7", GenerationParams(sampling=SamplingParams(temperature=0.7))),
        ("top_p", "0.9", GenerationParams(sampling=SamplingParams(top_p=0.9))),
        ("top_k", "40", GenerationParams(sampling=SamplingParams(top_k=40))),
        ("min_p", "0.05", GenerationParams(sampling=SamplingParams(min_p=0.05))),
        ("seed", "7", GenerationParams(seed=7)),
        ("exact_seed", "on", GenerationParams(exact_seed=True)),
        ("exact_seed", "off", GenerationParams()),
        ("k", "0", GenerationParams(num_draft_tokens=0)),
        ("max", "9", GenerationParams(max_tokens=9)),
        ("think", "9", GenerationParams(think_tokens=9)),
        ("think", "off", GenerationParams(think_tokens=0)),
        ("think", "on", GenerationParams()),
        ("template", "a=1", GenerationParams(chat_template_args={"a": 1})),
        ("template", '{"a": [1]}', GenerationParams(chat_template_args={"a": [1]})),
    ],
)
def test_one_setting_changes_and_the_others_stay(name, text, expected):
    assert adjusted(GenerationParams(), name, text) == expected


def test_a_line_sets_one_argument_of_the_template_and_an_object_sets_them_all():
    params = GenerationParams()
    for text in ("a=1", "b=x", "a=2"):
        params = adjusted(params, "template", text)
    assert params.chat_template_args == {"a": 2, "b": "x"}
    assert adjusted(params, "template", "{}").chat_template_args == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("template", "thinking", "chat_template_args must be NAME=VALUE; got 'thinking'"),
        ("temp", "warm", "temp must be a number; got 'warm'"),
        ("temp", "nan", "temperature must be"),
        ("seed", "1.5", "seed must be a whole number; got '1.5'"),
        ("exact_seed", "1", "exact_seed must be on or off; got '1'"),
        ("top_p", "2", "top_p must be"),
        ("max", "-1", "max_tokens must be 0 or more"),
        ("max", "off", "max must be a whole number; got 'off'"),
        ("think", "a lot", "think must be on or off or a whole number; got 'a lot'"),
        ("think", "-2", "think_tokens must be 0 or more, or -1 for no limit; got -2"),
        ("k", "99999", r"must be from 0 \(plain decoding\) to 255; got 99999"),
        ("speed", "1", f"choose from {', '.join(ADJUSTABLE)}"),
    ],
)
def test_what_cannot_be_says_why(name, text, message):
    with pytest.raises(ValueError, match=message):
        adjusted(GenerationParams(), name, text)


def test_what_can_be_changed_is_told_as_it_is_typed():
    params = GenerationParams(
        sampling=SamplingParams(temperature=0.7), seed=2**32 - 1, num_draft_tokens=0
    )
    told = adjustable(params)
    assert list(told) == list(ADJUSTABLE)
    assert (told["temp"], told["seed"], told["k"], told["top_p"]) == ("0.7", "4294967295", "0", "1")
    assert (told["exact_seed"], told["think"]) == ("off", "on")
    limits = [adjustable(GenerationParams(think_tokens=n))["think"] for n in (0, 5)]
    assert limits == ["off", "5"]
    args = {"enable_thinking": False, "effort": "low"}
    shown = adjustable(GenerationParams(chat_template_args=args))["template"]
    assert adjusted(GenerationParams(), "template", shown).chat_template_args == args
    assert adjustable(GenerationParams(exact_seed=True))["exact_seed"] == "on"


# ---- arguments of a template ----------------------------------------------------------------


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


def test_several_texts_add_up_and_a_mapping_is_copied():
    assert args(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}
    given = {"a": [1]}
    held = args(given)
    given["a"].append(2)
    assert held == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
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


def test_a_reply_that_is_no_more_exact_draws_as_before():
    exact = GenerationParams(exact=True)
    assert exact.is_coupled
    assert not replace(exact, exact=False).is_coupled
