"""Texts under a JSON schema are valid JSON of that schema, as another validator says."""

import json
import random

import pytest
from jsonschema import Draft202012Validator

from mlxspec.bench.prompts import read_schemas
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.grammar.compiled import Grammars
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.trace.events import text_of
from tests.grammar.test_compiled import ByteTokenizer, accepts
from tests.grammar.test_masks import END, SCHEMAS
from tests.support.mask_walks import Truth
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model

SCHEMAS = SCHEMAS | {
    f"bench {n}": json.loads(question.grammar.source) for n, question in enumerate(read_schemas())
}
GRAMMARS = Grammars(ByteTokenizer())


@each_value(name=SCHEMAS, any_whitespace=[False, True])
def test_every_text_of_the_grammar_is_valid(name, any_whitespace):
    grammar = Grammar.json_schema(SCHEMAS[name], any_whitespace=any_whitespace)
    validator, whole = Draft202012Validator(SCHEMAS[name]), 0
    truth = Truth(GRAMMARS.matcher(grammar), GRAMMARS.tokenizer, END)
    for seed in range(3):
        text = bytes(truth.text(random.Random(seed), 900)).decode(errors="replace")
        if accepts(GRAMMARS, grammar, text):
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
