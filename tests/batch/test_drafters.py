"""Every drafter, cache and target in a batch: each reply is the one that its prompt gets alone.

Greedy tokens are those of the target computed in NumPy, or of mlx-lm. The same acceptance as alone
shows that every sequence has the hidden states, the rows and the drafter that are its own.
"""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache, make_prompt_cache

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.eagle.drafter import EagleDrafter
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.kv.cache import Cache
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.adversaries import RandomTrees
from tests.support.batches import MODEL, PROMPTS, VOCAB, for_each_sequence
from tests.support.limited_targets import LimitedModel
from tests.support.tiny import ToyTokenizer, emitted, make_cache, make_engine, near_model
from tests.support.tiny_adapted import adapted, source
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter, random_exit
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Computed, Target

SOME = [*PROMPTS[:5], PROMPTS[1]]  # the last has one token, in a slot that had another text
FEW = [*SOME[:3], SOME[-1]]
LENGTH = 12


DRAFTERS = {
    # A model that agrees with the target now and then.
    "model": lambda target: DraftModelDrafter(
        Decoder(near_model(), target.cache.empty_like()), VOCAB
    ),
    "medusa": medusa_drafter,
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "exit": lambda target: exit_drafter(target, threshold=0.01),
    "pool": lambda target: PoolDrafter(
        [SuffixDrafter(), medusa_drafter(target), eagle3_drafter(target)]
    ),
    "pool with an exit": lambda target: PoolDrafter([SuffixDrafter(), exit_drafter(target)]),
}
TRUE = Computed(lambda kind: [Target(MODEL, kind).greedy(p, LENGTH) for p in SOME])
CELLS = [(name, "full") for name in DRAFTERS] + [
    (name, kind) for name in ("model", "eagle3", "exit") for kind in ("rotating", "int8")
]


def params_of(seed, **sampling):
    own = SamplingParams(**sampling) if sampling else SamplingParams(temperature=0.0)
    return GenerationParams(max_tokens=LENGTH, num_draft_tokens=4, sampling=own, seed=seed)


def in_a_batch(engine, params, prompts=SOME):
    """(tokens, mean accepted length) of each reply; three stand together."""
    replies = list(engine.generate_batch(prompts, params, batch_size=3, rows_per_round=64))
    assert [reply.fault for reply in replies] == [""] * len(prompts)
    return [(list(r.tokens), r.stats["mean_acceptance_length"]) for r in replies]


def in_a_batch_and_alone(make, params, prompts=SOME):
    """The same of the replies in a batch, which are those of each prompt alone."""
    found = in_a_batch(make(), params, prompts)
    for prompt, own, (tokens, length) in zip(prompts, params, found, strict=True):
        events = list(make().generate(prompt, own))
        assert tokens == emitted(events)
        assert length == events[-1].stats["mean_acceptance_length"]
    return [tokens for tokens, _ in found], [length for _, length in found]


@pytest.mark.parametrize(("drafter", "kind"), CELLS)
def test_greedy_replies_are_those_of_the_target_and_drafts_those_of_each_alone(drafter, kind):
    def make():
        return make_engine(MODEL, None, kind, make_drafter=DRAFTERS[drafter])

    found, _ = in_a_batch_and_alone(make, [params_of(seed) for seed in range(len(SOME))])
    assert found == TRUE[kind]


@pytest.mark.parametrize(("drafter", "kind"), [("model", "full"), ("eagle3", "int8")])
def test_sampled_replies_are_those_of_each_alone(drafter, kind):
    def make():
        return make_engine(MODEL, None, kind, make_drafter=DRAFTERS[drafter])

    params = [params_of(seed, temperature=0.9, top_k=12) for seed in range(len(SOME))]
    _, lengths = in_a_batch_and_alone(make, params)
    assert max(lengths) > 1


def random_exit_drafter(target):
    mx.random.seed(3)
    return EarlyExitDrafter(random_exit(target.model), target, threshold=0.01)


def random_trees(target):
    return for_each_sequence(RandomTrees, VOCAB)


RING = {"max_size": 12, "keep": 2}
INT8 = {"quantization": Quantization.for_head_dim(8, 32)}
ADAPTED = {
    "qwen3, eagle3": ("qwen3", eagle3_drafter, {}),
    "lfm2, random trees": ("lfm2", random_trees, {}),
    "lfm2, a draft model with states, over a ring": (
        "lfm2",
        lambda target: DraftModelDrafter(Decoder(target.model), VOCAB),
        {"max_size": 64},
    ),
    "lfm2, random trees over a ring that wraps": ("lfm2", random_trees, RING),
    "qwen3, medusa over a ring that wraps": ("qwen3", medusa_drafter, RING),
    "qwen3, an exit over 8-bit rows": ("qwen3", random_exit_drafter, INT8),
}


def true_replies(kind, settings, size):
    """The greedy replies of mlx-lm, over a cache of its own of the same kind."""
    model = source(kind, **size)

    def own_cache():
        if "quantization" in settings:
            return [QuantizedKVCache(group_size=32, bits=8) for _ in model.layers]
        caches = make_prompt_cache(model)
        if "max_size" not in settings:
            return caches
        return [RotatingKVCache(**settings) if isinstance(c, KVCache) else c for c in caches]

    # The prompt in steps of one token: over a ring, mlx-lm lets the rows of one forward see more.
    step = {"max_tokens": LENGTH, "prefill_step_size": 1}
    texts = [generate_step(mx.array(p), model, prompt_cache=own_cache(), **step) for p in FEW]
    return [[token for token, _ in text] for text in texts]


@pytest.mark.parametrize("case", ADAPTED)
def test_models_of_mlx_lm_reply_in_a_batch_as_alone(case):
    kind, make_drafter, settings = ADAPTED[case]
    size = {"head_dim": 32} if "quantization" in settings else {}
    model = adapted(kind, **size)

    def make():
        target = Decoder(model, Cache.for_model(model.config, **settings))
        return Engine(target, make_drafter(target), ToyTokenizer(VOCAB))

    found, lengths = in_a_batch_and_alone(make, [params_of(0)] * 4, FEW)
    assert found == true_replies(kind, settings, size)
    assert "draft model" not in case or all(length > 3 for length in lengths)


@pytest.mark.parametrize("support", ["chain", "none"])
def test_targets_without_trees_reply_in_a_batch(support):
    model = LimitedModel(MODEL, support)
    decoder = Decoder(model, make_cache(MODEL, "full"))
    engine = Engine(decoder, for_each_sequence(RandomTrees, VOCAB), ToyTokenizer(VOCAB))
    found = in_a_batch(engine, [params_of(0)] * len(SOME))
    assert [tokens for tokens, _ in found] == TRUE["full"]


@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_a_drafter_that_fails_gets_no_more_states_and_its_reply_goes_on(kind, monkeypatch):
    propose, read = EagleDrafter.propose, EagleDrafter.read
    failed = set()

    def fails_once(drafter, root, budget):
        if drafter.num_read > 12:
            failed.add(id(drafter))
            raise ValueError("too little")
        return propose(drafter, root, budget)

    def fails_too(drafter, tokens, states):
        assert id(drafter) not in failed, "states for a drafter that failed"
        read(drafter, tokens, states)

    monkeypatch.setattr(EagleDrafter, "propose", fails_once)
    monkeypatch.setattr(EagleDrafter, "read", fails_too)
    engine = make_engine(MODEL, None, kind, make_drafter=eagle_drafter)
    prompts = [SOME[0], SOME[3], SOME[2]]
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=4)
    replies = list(engine.generate_batch(prompts, params, batch_size=3))
    true = [TRUE[kind][index] for index in (0, 3, 2)]
    assert [list(reply.tokens) for reply in replies] == true
    assert "too little" in {reply.fault for reply in replies}
