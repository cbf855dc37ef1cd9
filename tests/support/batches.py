"""Prompts of many lengths, the target's replies to them, and batches that reply to them."""

import numpy as np

from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.params import SamplingParams
from mlxspec.trace.events import GenerationFinished
from tests.support.adversaries import (
    AlwaysRight,
    AlwaysWrong,
    Duplicates,
    RandomTrees,
    UniformChain,
)
from tests.support.drafting import pool_with_seed_table
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Computed, Target

VOCAB, LENGTH = 24, 18
PROMPTS = [
    [int(token) for token in np.random.default_rng(length).integers(0, VOCAB, length)]
    for length in (8, 1, 19, 3, 2, 30, 11)
]
MODELS = {family: tiny_model(family, vocab_size=VOCAB) for family in ("llama", "qwen2")}
MODEL = MODELS["llama"]
TARGETS = {family: Target(model) for family, model in MODELS.items()}
REPLIES = Computed(lambda family: [TARGETS[family].greedy(prompt, LENGTH) for prompt in PROMPTS])


def for_each_sequence(kind, *args):
    """The class of an adversary, made so that every sequence gets one of its own."""

    class Own(kind):
        def fresh(self):
            return Own(*args)

    return Own(*args)


class KnowsReplies:
    """Gives its adversary the text for the prompt of the sequence."""

    def __init__(self):
        super().__init__(None)

    def start(self, prompt, sampling, key):
        super().start(prompt, sampling, key)
        self.text = [*prompt, *TARGETS["llama"].greedy(prompt, LENGTH)]


class Right(KnowsReplies, AlwaysRight):
    """Right about every reply."""


class Wrong(KnowsReplies, AlwaysWrong):
    """Wrong about every reply."""


DRAFTERS = {
    **HOST_DRAFTERS,
    "pool with a seed table": lambda: pool_with_seed_table(VOCAB),
    "always right": lambda: for_each_sequence(Right),
    "always wrong": lambda: for_each_sequence(Wrong),
    "random trees": lambda: for_each_sequence(RandomTrees, VOCAB),
    "duplicates": lambda: for_each_sequence(Duplicates, VOCAB),
    "drawn chains": lambda: for_each_sequence(UniformChain, VOCAB),
}
SAMPLING = {
    "temperature": SamplingParams(temperature=0.8),
    "filters": SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": SamplingParams(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4),
}


def batch(drafter="none", prompts=PROMPTS, params=None, *, kind="full", model=MODEL, **sizes):
    engine = make_engine(model, DRAFTERS[drafter](), kind)
    settings = {"batch_size": 4, "rows_per_round": 24, **sizes}
    return list(engine.generate_batch(prompts, params, **settings))


def one_by_one(drafter, prompts, params, *, kind="full", model=MODEL):
    """(tokens, text, reason) of the reply to each prompt, from a separate engine."""
    replies = []
    for prompt, own in zip(prompts, params, strict=True):
        engine = make_engine(model, DRAFTERS[drafter](), kind)
        events = list(engine.generate(prompt, own))
        pieces = [token.text for event in events for token in getattr(event, "emit", ())]
        end = events[-1]
        assert isinstance(end, GenerationFinished)
        replies.append((tuple(emitted(events)), "".join([*pieces, end.text]), end.reason))
    return replies


def seen(replies):
    assert [reply.index for reply in replies] == list(range(len(replies)))
    assert [reply.fault for reply in replies] == [""] * len(replies)
    return [(reply.tokens, reply.text, reply.finish_reason) for reply in replies]


def tokens_of(replies):
    return [list(reply.tokens) for reply in replies]
