"""A thousand replies under JSON schemas with the default model: each has to parse and to be valid.

`python -m tests.campaigns.structured --replies 1000` asks the 24 questions of the bench again and
again, half of the replies at temperature 0 and half at 1, with changing drafters and numbers of
nodes. A reply that did not end by itself is counted, and not judged. Every 25 replies it says how
far it is; `--first 400` goes on with the reply of that number.
"""

import argparse
import json
from collections import Counter
from itertools import cycle, islice, product

from jsonschema import Draft202012Validator

import mlxspec
from mlxspec.api import HOST_DRAFTERS
from mlxspec.bench.structured import choose_schemas
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import text_of

MAX_TOKENS = 400


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with reply N (0)")
    parser.add_argument("--model", default="default")
    args = parser.parse_args(argv)
    ends = Counter()
    with mlxspec.load(args.model, drafter="pool") as engine:
        numbered = islice(enumerate(cases()), args.first, args.first + args.replies)
        for done, (seed, case) in enumerate(numbered, 1):
            ends[write(engine, seed, *case)] += 1
            if done % 25 == 0:
                print(f"{args.first + done}: {dict(ends)}", flush=True)
    print(f"{args.replies} replies: {dict(ends)}")
    return ends


def cases():
    """Yield question, temperature, drafter and number of nodes; a question as often as another."""
    ways = cycle(product((0.0, 1.0), ("pool", "suffix", "none", "table"), (31, 6)))
    yield from ((question, *way) for question, way in zip(cycle(choose_schemas()), ways))


def write(engine, seed, question, temperature, drafter, num_nodes):
    """Write a reply and judge it; return why it ended."""
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": question.prompt}])
    params = GenerationParams(
        max_tokens=MAX_TOKENS,
        grammar=dict(question.schema),
        sampling=SamplingParams(temperature=temperature),
        num_draft_tokens=num_nodes,
        seed=seed,
    )
    own = None if drafter == "pool" else HOST_DRAFTERS[drafter]()
    events = list(engine.generate(prompt, params, drafter=own))
    if events[-1].reason == "stop":
        value = json.loads("".join(map(text_of, events)))
        Draft202012Validator(question.schema).validate(value)
    return events[-1].reason


if __name__ == "__main__":
    main()
