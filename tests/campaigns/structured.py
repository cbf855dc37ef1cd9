"""A thousand replies under JSON schemas with the default model: each has to parse and to be valid.

    python -m tests.campaigns.structured --replies 1000    one after the other
    python -m tests.campaigns.structured --batch 16        16 at a time, in one batch
    python -m tests.campaigns.structured --first 400       goes on with the reply of that number

It asks the 24 questions of the bench again and again, half of the replies at temperature 0 and half
at 1, with changing drafters and numbers of nodes. Each mask has to be that of a matcher that reads
the whole text anew. A reply that did not end by itself is counted, and not judged.
"""

import argparse
import json
from collections import Counter
from itertools import cycle, islice, product

import numpy as np
from jsonschema import Draft202012Validator

import mlxspec
from mlxspec.bench.prompts import read_schemas
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.grammar.constraint import Constraint, mask_of
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import text_of

MAX_TOKENS = 400
DRAFTERS = ("pool", "suffix", "none", "table")


def main(argv=None):
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("--replies", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with reply N (0)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="N at a time (1)")
    parser.add_argument("--model", default="default")
    args = parser.parse_args(argv)
    ends = Counter()
    numbered = islice(enumerate(cases()), args.first, args.first + args.replies)
    Constraint._at = compared(Constraint._at)
    with mlxspec.load(args.model, drafter="pool") as engine:
        for drafter, group in groups(numbered, args.batch):
            ends.update(write(engine, drafter, group))
            print(f"{ends.total()}: {dict(ends)}", flush=True)
    print(f"{args.replies} replies: {dict(ends)}")
    return ends


def compared(masks_below):
    """Return a method of `Constraint` that compares what it returns with a fresh matcher's mask."""

    def at(constraint, below):
        after, fresh = masks_below(constraint, below), constraint._begin()
        fresh.try_consume_tokens([*constraint._read, *below])
        size = constraint._vocab_size
        bits, fault = mask_of(fresh)
        may_end, bits = bits[size], bits[:size].copy()
        assert bool(fault) == bool(after.fault), (constraint._read, below, fault, after.fault)
        assert after.is_complete == bool(may_end and not bits.any()), (constraint._read, below)
        if may_end:
            bits[constraint._end_tokens] = 1
        is_same = fault or after.is_complete or np.array_equal(after.bits, bits)
        assert is_same, (constraint._read, below)
        return after

    return at


def cases():
    """Yield drafter, question, temperature and number of nodes; a question as often as another."""
    ways = cycle(product((0.0, 1.0), DRAFTERS, (31, 6)))
    for question, (temperature, drafter, num_nodes) in zip(cycle(read_schemas()), ways):
        yield drafter, question, temperature, num_nodes


def groups(numbered, size):
    """Yield a drafter and its next `size` cases, each after its number."""
    waiting = {drafter: [] for drafter in DRAFTERS}
    for number, (drafter, *case) in numbered:
        waiting[drafter].append((number, *case))
        if len(waiting[drafter]) == size:
            yield drafter, waiting[drafter]
            waiting[drafter] = []
    yield from ((drafter, group) for drafter, group in waiting.items() if group)


def write(engine, drafter, group):
    """Write the replies of a group and judge them; return why each ended."""
    own = None if drafter == "pool" else HOST_DRAFTERS[drafter]()
    jobs = [(prompt_of(engine, case[1]), params_of(*case)) for case in group]
    if len(group) == 1:
        replies = [list(engine.generate(*jobs[0], drafter=own))]
        texts = ["".join(map(text_of, events)) for events in replies]
        reasons = [events[-1].reason for events in replies]
    else:
        prompts, params = zip(*jobs, strict=True)
        found = list(engine.generate_batch(prompts, params, drafter=own, batch_size=len(group)))
        texts, reasons = [reply.text for reply in found], [reply.finish_reason for reply in found]
    for (_, question, *_), text, reason in zip(group, texts, reasons, strict=True):
        if reason == "stop":
            Draft202012Validator(json.loads(question.grammar.source)).validate(json.loads(text))
    return reasons


def prompt_of(engine, question):
    return engine.tokenizer.apply_chat_template([{"role": "user", "content": question.turns[0]}])


def params_of(number, question, temperature, num_nodes):
    return GenerationParams(
        max_tokens=MAX_TOKENS,
        grammar=question.grammar,
        sampling=SamplingParams(temperature=temperature),
        num_draft_tokens=num_nodes,
        seed=number,
    )


if __name__ == "__main__":
    main()
