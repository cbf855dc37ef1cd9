"""What a batch leaves alone: the engine's conversation, other drafters, other replies' figures."""

from mlxspec.params import GenerationParams
from tests.support.adversaries import RandomTrees
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, REPLIES, VOCAB, batch, tokens_of
from tests.support.tiny import emitted, make_engine


def test_the_engine_goes_on_with_its_own_conversation():
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    params = GenerationParams(max_tokens=9)
    drafter = engine.drafter
    first = emitted(engine.generate(PROMPTS[0], params))
    history = engine.target.history
    replies = engine.generate_batch(PROMPTS, params, batch_size=3)
    early = [next(replies)]
    assert engine.target.history == history
    assert engine.drafter is drafter
    assert emitted(engine.generate([*PROMPTS[0], *first], params)) == REPLIES["llama"][0][9:18]
    assert tokens_of([*early, *replies]) == [reply[:9] for reply in REPLIES["llama"]]


def test_a_drafter_that_breaks_down_costs_its_drafts_alone():
    class Frail(RandomTrees):
        name = "frail"

        def fresh(self):
            return Frail(VOCAB)

        def propose(self, root, budget):
            if len(self.tokens) > 12:
                raise RuntimeError("no memory")
            return super().propose(root, budget)

    engine = make_engine(MODEL, Frail(VOCAB))
    params = GenerationParams(max_tokens=18, num_draft_tokens=3)
    replies = list(engine.generate_batch(PROMPTS[:3], params))
    assert tokens_of(replies) == REPLIES["llama"][:3]
    assert [reply.fault for reply in replies] == ["no memory"] * 3
    assert all(reply.stats["rounds"] for reply in replies[:2])
    assert all(reply.stats["plain_forwards"] for reply in replies)


def test_figures_are_those_of_each_reply():
    replies = batch("always right", params=GenerationParams(max_tokens=12), rows_per_round=16)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply.stats["prompt_tokens"] == len(prompt)
        assert reply.stats["generated_tokens"] == len(reply.tokens) == 12
        assert reply.stats["accepted"] + reply.stats["target_forwards"] >= 12
        assert reply.stats["generation_tps"] > 0
