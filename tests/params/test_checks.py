"""Settings: what is of another type than it has to be is refused, and nothing is taken for it."""

import json
import math
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.batch.open import BatchSettings
from mlxspec.params import DraftLimits, GenerationParams, Grammar, Options, SamplingParams


class Kind:
    """What a setting takes, with what becomes of it, and what it refuses."""

    def __init__(self, taken, refused):
        self.taken, self.refused = taken, refused


OF_NO_KIND = [object(), 1j, b"ab", Decimal(3), {1.5: 1}, {1, 2}]
NO_NUMBERS = [True, "1", None, [1], math.nan, mx.array(1), np.bool_(True)]


def whole(least=0, most=None):
    own = [(least, least), (np.int64(least + 2), least + 2), (np.uint8(8), 8)]
    over = [] if most is None else [most + 1]
    return Kind(own, [least - 1, least + 0.5, float(least), 10.0**9, *over, *NO_NUMBERS])


def number(*taken, refused=()):
    same = [(value, value) for value in taken]
    own = [*same, (Fraction(taken[0]), taken[0]), (np.float32(taken[0]), taken[0])]
    return Kind(own, [10**400, math.inf, np.float16("nan"), *NO_NUMBERS, *refused])


def one_of(*words):
    return Kind([(word, word) for word in words], ["x", words[0].upper(), 1, None, [words[0]]])


def or_none(kind):
    return Kind([*kind.taken, (None, None)], [value for value in kind.refused if value is not None])


def text_like(taken, refused=(None,)):
    return Kind([(value, value) for value in taken], [4, True, ["a"], *refused])


share = number(0, 1, 0.5, refused=[-0.1, 1.1])
flag = Kind([(True, True), (False, False)], [0, 1, "True", None, np.bool_(True)])
function = Kind([(len, len), (int, int)], [4, "len", [len]])
name_or_path = text_like(["ab", Path("x")])
ids = [([1, 2], (1, 2)), (np.array([1, 2]), (1, 2)), (mx.array([1, 2]), (1, 2)), (range(2), (0, 1))]
NO_IDS = [4, "ab", [0.5], [True], ["a"], None, np.array([[1]]), np.array(3), np.array([1.0])]
any_ids, known_ids = Kind([*ids, ([-1], (-1,))], NO_IDS), Kind(ids, [*NO_IDS, [-1]])
FIELDS = {
    SamplingParams: {
        "temperature": number(0, 0.5, 2, refused=[-0.1]),
        "top_k": Kind([(-1, 0), (0, 0), (np.int64(3), 3)], [-2, 2.5, *NO_NUMBERS]),
        "top_p": share,
        "min_p": share,
        "repetition_penalty": number(1, 0.5, 2, refused=[0, -1]),
        "presence_penalty": number(0, -1, 2.5),
        "frequency_penalty": number(0, -1, 2.5),
        "logit_bias": Kind(
            [({}, {}), ({np.int64(2): 1}, {2: 1})],
            [None, [1, 2], {-1: 1}, {2: "1"}, {True: 1}, {2: math.inf}],
        ),
        "min_tokens_to_keep": whole(1),
        "xtc_probability": share,
        "xtc_threshold": number(0, 0.5, refused=[0.6, -0.1]),
        "xtc_special_tokens": known_ids,
        "filter_order": one_of("hugging-face", "mlx-lm"),
    },
    GenerationParams: {
        "max_tokens": whole(),
        "sampling": Kind([(SamplingParams(), SamplingParams())], [None, 0.7, {}]),
        "seed": whole(0, 2**64 - 1),
        "stop": Kind([("a", ("a",)), (["a", "b"], ("a", "b")), ((), ())], ["", ["a", ""], [1], 4]),
        "stop_tokens": any_ids,
        "num_draft_tokens": whole(most=255),
        "chain_rule": or_none(one_of("block", "token")),
        "exact_seed": flag,
        "exact": flag,
        "think_tokens": whole(-1),
        "stop_repeats": flag,
        "grammar": Kind(
            [
                ("-", None),
                (None, None),
                ({"type": "object"}, Grammar("json-schema", '{"type": "object"}')),
            ],
            ["x", 4, [], {"a": math.nan}, {"a": 10**5000}],
        ),
        "prediction": or_none(text_like(["", "ab"])),
        "chat_template_args": Kind(
            [({"a": [1]}, {"a": [1]}), ("a=1", {"a": 1}), (["a=1", "b=x"], {"a": 1, "b": "x"})],
            ["a", "a b=1", {1: 2}, {"a": {1}}, {"a": math.nan}, 4, ["a=1", 2], None],
        ),
        "ignore_eos": flag,
        "logits_processors": Kind([([len], (len,)), ((), ())], [len, [4], None]),
        "sampler": or_none(function),
        "prefill_step_size": or_none(whole(1)),
        "on_logits": or_none(function),
    },
    Options: {
        "drafter": name_or_path,
        "draft_model": or_none(name_or_path),
        "lookahead": whole(1),
        "max_kv_size": or_none(whole(1)),
        "keep": whole(),
        "kv_bits": Kind([(4, 4), (np.int64(8), 8), (None, None)], [6, 4.0, "4", True]),
        "learn": or_none(name_or_path),
        "prefixes": or_none(name_or_path),
        "exit_threshold": or_none(number(1, 0.5, refused=[0, 1.1])),
        "dtype": one_of("auto", "float16", "bfloat16", "float32"),
        "port": one_of("auto", "own", "mlx-lm"),
        "adapter": or_none(name_or_path),
        "hosts": or_none(text_like(["2", "a,b"], [Path("x"), None])),
        "branching": or_none(whole(1)),
        "depth": or_none(whole(1)),
        "chain_rule": one_of("block", "token"),
        "exact": flag,
    },
    DraftLimits: {"branching": or_none(whole(1)), "depth": or_none(whole(1))},
    BatchSettings: {"batch_size": whole(1), "rows_per_round": whole(1)},
}


@pytest.mark.parametrize("settings", FIELDS)
def test_a_field_takes_what_it_allows_and_refuses_the_rest_by_its_name(settings):
    assert set(FIELDS[settings]) == {field.name for field in fields(settings)}
    for name, kind in FIELDS[settings].items():
        for value, expected in kind.taken:
            kept = getattr(settings(**{name: value}), name)
            assert kept == expected, (name, value)
            assert not isinstance(kept, np.generic), name
        for value in (*kind.refused, *OF_NO_KIND):
            with pytest.raises(ValueError, match=name):
                settings(**{name: value})


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


def test_a_temperature_too_small_to_divide_by_is_greedy():
    assert [SamplingParams(temperature=t).temperature for t in (1e-320, 9e-6, 1e-5)] == [0, 0, 1e-5]


def test_settings_keep_their_mappings_whatever_becomes_of_those_given():
    biases, schema = {2: 1}, {"type": "object"}
    params = GenerationParams(sampling=SamplingParams(logit_bias=biases), grammar=schema)
    biases[3], schema["type"] = 5.0, "array"
    assert params.sampling.logit_bias == {2: 1.0}
    assert json.loads(params.grammar.source) == {"type": "object"}
