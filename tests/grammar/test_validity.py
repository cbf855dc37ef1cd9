"""Texts under a JSON schema are valid JSON of that schema, as another validator says."""

import json
import random

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from mlxspec.bench.prompts import read_schemas
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.grammar.compiled import Grammars
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.trace.events import text_of
from tests.grammar.test_compiled import ByteTokenizer
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model

SCHEMAS = {
    "keywords": {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 10, "exclusiveMaximum": 200},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 6},
            "when": {"type": "string", "format": "date"},
            "kind": {"enum": ["a", 1, None, True]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
            "pair": {
                "type": "array",
                "prefixItems": [{"const": 1}, {"type": "null"}],
                "items": False,
            },
        },
        "required": ["id", "code", "kind"],
        "additionalProperties": False,
    },
    "choices": {
        "anyOf": [
            {"type": "object", "properties": {"t": {"const": "x"}}, "required": ["t"]},
            {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 44}]},
            {"type": ["boolean", "null"]},
        ]
    },
    "recursion": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer", "minimum": 0, "maximum": 9},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
                "required": ["v", "next"],
                "additionalProperties": False,
            }
        },
    },
    **{
        f"bench {n}": json.loads(question.grammar.source)
        for n, question in enumerate(read_schemas())
    },
}
GRAMMARS = Grammars(ByteTokenizer())


def walk(grammar, seed, most=900):
    """A text by random allowed bytes; it ends where it may with a chance of one half."""
    matcher, text, chance = GRAMMARS.matcher(grammar), bytearray(), random.Random(seed)
    while len(text) < most:
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little"))
        may_end, allowed = 256 in allowed, allowed[allowed < 256]
        if not len(allowed) or (may_end and chance.random() < 0.5):
            return text.decode()
        # Quotes and brackets are likelier, or random strings would never end.
        signs = [byte for byte in allowed if chr(byte) in '"}],']
        byte = int(chance.choice(signs if signs and chance.random() < 0.4 else list(allowed)))
        assert matcher.try_consume_tokens([byte]) == 1
        text.append(byte)
    return None


@each_value(name=SCHEMAS, any_whitespace=[False, True])
def test_every_text_of_the_grammar_is_valid(name, any_whitespace):
    grammar = Grammar.json_schema(SCHEMAS[name], any_whitespace=any_whitespace)
    validator, whole = Draft202012Validator(SCHEMAS[name]), 0
    for seed in range(3):
        text = walk(grammar, seed)
        if text is not None:
            validator.validate(json.loads(text))
            whole += 1
    assert whole


@pytest.mark.parametrize(
    ("name", "temperature"), [("keywords", 1.0), ("choices", 1.0), ("bench 3", 0.0)]
)
def test_replies_of_a_model_are_valid(name, temperature):
    drafter = PoolDrafter([SuffixDrafter(), TableDrafter()])
    engine = make_engine(tiny_model(vocab_size=256), drafter, tokenizer=ByteTokenizer())
    validator, whole = Draft202012Validator(SCHEMAS[name]), 0
    for seed in range(1 if temperature == 0 else 3):
        params = GenerationParams(
            max_tokens=120,
            grammar=SCHEMAS[name],
            num_draft_tokens=8,
            sampling=SamplingParams(temperature=temperature),
            seed=seed,
        )
        events = list(engine.generate([7, 8, 9], params))
        if events[-1].reason == "stop":
            validator.validate(json.loads("".join(map(text_of, events))))
            whole += 1
    assert whole or temperature == 0  # greedy, a random model may repeat itself for ever
