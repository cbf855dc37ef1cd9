"""Settings: what is of another type than it has to be is refused, and nothing is taken for it."""

import json
import math
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from os import PathLike
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.batch import BatchSettings
from mlxspec.params import DraftLimits, GenerationParams, Grammar, Options, SamplingParams


def is_whole(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(least=0, most=math.inf):
    return lambda value: is_whole(value) and least <= value <= most


def number(fits=lambda value: True):
    def is_allowed(value):
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        return abs(value) <= Fraction(np.finfo(float).max) and fits(value)

    return is_allowed


def flag(value):
    return value is True or value is False


def or_none(fits):
    return lambda value: value is None or fits(value)


def one_of(*words):
    return lambda value: isinstance(value, str) and value in words


def name_or_path(value):
    return isinstance(value, str | PathLike)


def ids(value):
    if isinstance(value, np.ndarray | mx.array):
        value = value.tolist() if value.ndim == 1 else None
    return isinstance(value, list | tuple | range) and all(map(is_whole, value))


def known_ids(value):
    return ids(value) and all(int(token) >= 0 for token in value)


def strings(value):
    if isinstance(value, str):
        return value != ""
    return isinstance(value, list | tuple | range) and all(isinstance(v, str) and v for v in value)


def functions(value):
    return isinstance(value, list | tuple | range) and all(map(callable, value))


def biases(value):
    return isinstance(value, dict) and all(
        is_whole(token) and token >= 0 and number()(bias) for token, bias in value.items()
    )


def argument_texts(value):
    """The arguments of texts NAME=VALUE or of a JSON object; None for other texts."""
    found = {}
    for text in [value] if isinstance(value, str) else value:
        name, equals, one = text.partition("=")
        if text.strip() == "{}":
            continue
        if not equals or not name.strip().isidentifier():
            return None
        try:
            found[name.strip()] = json.loads(one)
        except ValueError:
            found[name.strip()] = one.strip()
    return found


def is_json(value):
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 10**4000
    return value is None or isinstance(value, str)


def template_args(value):
    is_list = isinstance(value, list | tuple | range)
    if isinstance(value, str) or (is_list and all(isinstance(text, str) for text in value)):
        return argument_texts(value) is not None
    return isinstance(value, dict) and all(
        isinstance(name, str) and name.isidentifier() and is_json(one)
        for name, one in value.items()
    )


def schema(value):
    if isinstance(value, str):
        return value == "-"
    return value is None or (
        isinstance(value, dict)
        and all(isinstance(name, str) and is_json(one) for name, one in value.items())
    )


share = number(lambda value: 0 <= value <= 1)
FIELDS = {
    SamplingParams: {
        "temperature": number(lambda value: value >= 0),
        "top_k": whole(-1),
        "top_p": share,
        "min_p": share,
        "repetition_penalty": number(lambda value: value > 0),
        "presence_penalty": number(),
        "frequency_penalty": number(),
        "logit_bias": biases,
        "min_tokens_to_keep": whole(1),
        "xtc_probability": share,
        "xtc_threshold": number(lambda value: 0 <= value <= 0.5),
        "xtc_special_tokens": known_ids,
        "filter_order": one_of("hugging-face", "mlx-lm"),
    },
    GenerationParams: {
        "max_tokens": whole(),
        "sampling": lambda value: isinstance(value, SamplingParams),
        "seed": whole(0, 2**64 - 1),
        "stop": strings,
        "stop_tokens": ids,
        "num_draft_tokens": whole(most=255),
        "chain_rule": or_none(one_of("block", "token")),
        "exact_seed": flag,
        "stop_repeats": flag,
        "grammar": schema,
        "prediction": or_none(lambda value: isinstance(value, str)),
        "chat_template_args": template_args,
        "ignore_eos": flag,
        "logits_processors": functions,
        "sampler": or_none(callable),
        "prefill_step_size": or_none(whole(1)),
        "on_logits": or_none(callable),
    },
    Options: {
        "drafter": name_or_path,
        "draft_model": or_none(name_or_path),
        "lookahead": whole(1),
        "max_kv_size": or_none(whole(1)),
        "keep": whole(),
        "kv_bits": or_none(lambda value: is_whole(value) and value in (4, 8)),
        "learn": or_none(name_or_path),
        "exit_threshold": or_none(number(lambda value: 0 < value <= 1)),
        "dtype": one_of("auto", "float16", "bfloat16", "float32"),
        "port": one_of("auto", "own", "mlx-lm"),
        "adapter": or_none(name_or_path),
        "hosts": or_none(lambda value: isinstance(value, str)),
        "branching": or_none(whole(1)),
        "depth": or_none(whole(1)),
        "chain_rule": one_of("block", "token"),
    },
    DraftLimits: {"branching": or_none(whole(1)), "depth": or_none(whole(1))},
    BatchSettings: {"batch_size": whole(1), "rows_per_round": whole(1)},
}
SETTLED = {
    "temperature": lambda value: value if value >= 1e-5 else 0,
    "top_k": lambda value: max(0, value),
}
EVERY_FIELD = [(kind, name) for kind, names in FIELDS.items() for name in names]

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([2**31, 2**64, -(2**64), 10**400, 10**5000]),
    st.floats(width=32),
    st.sampled_from([0.5, 2.0, 1e-5, math.nan, math.inf, -0.0, 1e-320]),
    st.text(max_size=3),
    st.sampled_from(["4", "0.5", "block", "token", "BLOCK", "True"]),
    st.binary(max_size=2),
    st.complex_numbers(max_magnitude=2),
    st.sampled_from([Decimal("0.5"), Decimal(3), Fraction(1, 2), Path("x"), object(), len, int]),
    st.sampled_from([np.int64(3), np.uint8(4), np.float32(0.5), np.float64(0.5), np.bool_(True)]),
    st.sampled_from([np.float16("nan"), np.str_("ab"), mx.array(3), SamplingParams()]),
)
arrays = st.sampled_from(
    [
        *map(np.array, ([1, 2], [1.0, 2.0], [[1, 2]], 3, ["a"], [True])),
        *map(mx.array, ([1, 2], [0.5], [[1]])),
    ]
)
anything = st.one_of(
    plain,
    arrays,
    st.lists(plain, max_size=3),
    st.tuples(plain),
    st.sets(st.integers(0, 3), max_size=2),
    st.dictionaries(st.one_of(st.integers(-1, 5), st.floats(), st.text(max_size=1)), plain),
)


def taken(value, kind):
    """What a setting becomes where it is taken: a Python number, a tuple, a dict."""
    if kind in (ids, known_ids):
        return tuple(int(token) for token in value)
    if kind is functions:
        return tuple(value)
    if kind is template_args and not isinstance(value, dict):
        return argument_texts(value)
    if kind is schema:
        return Grammar("json-schema", json.dumps(value)) if isinstance(value, dict) else None
    if kind is strings:
        return (value,) if isinstance(value, str) else tuple(value)
    return value


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_is_tried(kind):
    assert set(FIELDS[kind]) == {field.name for field in fields(kind)}


@pytest.mark.parametrize(("kind", "name"), EVERY_FIELD)
def test_a_field_takes_what_it_allows_and_refuses_the_rest_by_its_name(kind, name):
    is_allowed = FIELDS[kind][name]
    found = {True: 0, False: 0}

    @settings(max_examples=40)
    @given(anything)
    def check(value):
        found[bool(is_allowed(value))] += 1
        if is_allowed(value):
            kept = getattr(kind(**{name: value}), name)
            expected = taken(value, is_allowed)
            assert kept == SETTLED.get(name, lambda value: value)(expected)
            assert not isinstance(kept, np.generic) or isinstance(kept, str)
            return
        with pytest.raises(ValueError, match=name):
            kind(**{name: value})

    check()
    assert found[False] > 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: GenerationParams(max_tokens=2.5),
            "max_tokens must be a whole number, 0 or more; got 2.5 of type float",
        ),
        (lambda: GenerationParams(chain_rule="foo"), "one of block, token; got 'foo'"),
        (lambda: GenerationParams(stop=("a", "")), "stop holds an empty text.*: leave it out"),
        (lambda: SamplingParams(temperature=math.nan), "temperature must be 0 or more.*; got nan"),
        (lambda: SamplingParams(logit_bias={2.5: 1}), "logit_bias: a token id must be a whole"),
        (lambda: SamplingParams(logit_bias={2: "1"}), "logit_bias of token 2 must be a number"),
        (lambda: Options(kv_bits=6), "kv_bits must be 4 or 8; got 6"),
    ],
)
def test_says_what_was_got_and_what_is_allowed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_one_text_is_one_stop_string():
    assert GenerationParams(stop="bd").stop == ("bd",)
    assert GenerationParams(stop=["b", "d"]).stop == ("b", "d")


def test_a_law_keeps_its_biases_whatever_becomes_of_the_mapping():
    given_biases = {2: 1}
    sampling = SamplingParams(logit_bias=given_biases)
    given_biases[3] = 5.0
    assert sampling.logit_bias == {2: 1.0}
