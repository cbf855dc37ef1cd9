"""Same seed, same text: that of plain sampling, for every drafter.

Drafts that are a function of the past leave it always, those that are drawn do with `exact_seed`.
The text is compared with that of an engine that never drafts, and that text with draws by hand
from the law that NumPy computes anew for every prefix.
"""

from functools import cache

import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.verify.noise import Noise
from tests.support.adversaries import Duplicates, RandomTrees, UniformChain
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Target, draw_by_hand

VOCAB = 24
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
MODEL = tiny_model(vocab_size=VOCAB)
SAMPLING = {
    "temperature": SamplingParams(temperature=0.8),
    "filters": SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "penalties": SamplingParams(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4),
}
CHOOSING = {  # a function of the past
    **{name: lambda target, make=make: make() for name, make in HOST_DRAFTERS.items()},
    "medusa": medusa_drafter,
    "prediction": lambda target: PredictionDrafter((3, 1, 0, 2, 2, 1), NoDrafter()),
    "random trees": lambda target: RandomTrees(VOCAB),
    "duplicates": lambda target: Duplicates(VOCAB),
    "pool of heads": lambda target: PoolDrafter([SuffixDrafter(), eagle3_drafter(target)]),
}
DRAWING = {  # with branches, where the budget allows for them
    "model": lambda target: DraftModelDrafter(Decoder(tiny_model(seed=7)), VOCAB),
    "the target itself": lambda target: DraftModelDrafter(Decoder(MODEL), VOCAB),
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "exit": lambda target: exit_drafter(target, threshold=0.01),
    "uniform chain": lambda target: UniformChain(VOCAB),  # knows nothing of the noise
}


def engine_with(make_drafter, kind="full"):
    return make_engine(MODEL, None, kind, make_drafter=make_drafter)


def texts(engine, sampling, *, budget, exact_seed=False, seed=5):
    """Two turns of a chat, the second on what the first left in the cache."""
    params = GenerationParams(
        max_tokens=9, sampling=sampling, seed=seed, num_draft_tokens=budget, exact_seed=exact_seed
    )
    first = emitted(engine.generate(PROMPT, params))
    second = emitted(engine.generate([*PROMPT, *first, 9, 2], params))
    return first, second


@pytest.mark.parametrize("sampling", SAMPLING)
def test_plain_sampling_takes_the_largest_of_law_and_noise_at_every_position(sampling):
    truth, noise, tokens = Target(MODEL), Noise.of_seed(5), list(PROMPT)
    engine = engine_with(lambda target: NoDrafter())
    first, second = texts(engine, SAMPLING[sampling], budget=0)
    assert len({*zip(first, second, strict=True)}) > 4
    for said, more in ((first, []), (second, [9, 2])):
        tokens += more
        length = len(tokens)
        for token in said:
            here = truth.distribution(tuple(tokens), SAMPLING[sampling], length)
            assert token == draw_by_hand(here, noise.at(len(tokens)).gumbel(1, VOCAB)[0])[0]
            tokens.append(token)


@cache
def plain_texts(sampling, kind="full"):
    return texts(engine_with(CHOOSING["none"], kind), SAMPLING[sampling], budget=6)


@each_value(
    drafter=[name for name in CHOOSING if name != "none"],
    sampling=SAMPLING,
    kind=["full", "rotating"],
)
def test_drafts_that_are_chosen_leave_the_text_of_the_seed(drafter, sampling, kind):
    engine = engine_with(CHOOSING[drafter], kind)
    assert texts(engine, SAMPLING[sampling], budget=6) == plain_texts(sampling, kind)


@each_value(drafter=[*DRAWING, "pool of heads"], sampling=SAMPLING)
def test_with_an_exact_seed_drafts_that_are_drawn_leave_it_too(drafter, sampling):
    engine = engine_with({**CHOOSING, **DRAWING}[drafter])
    assert texts(engine, SAMPLING[sampling], budget=12, exact_seed=True) == plain_texts(sampling)


@pytest.mark.parametrize("sampling", ["temperature", "penalties"])
def test_without_it_they_need_not(sampling):
    assert texts(engine_with(DRAWING["model"]), SAMPLING[sampling], budget=12) != plain_texts(
        sampling
    )


def rates(make_drafter):
    """Accepted and drafted tokens of some replies."""
    engine, accepted, drafted = engine_with(make_drafter), 0, 0
    for seed in range(2):
        params = GenerationParams(
            max_tokens=21,
            sampling=SamplingParams(temperature=1.0),
            seed=seed,
            exact_seed=True,
            num_draft_tokens=4,
        )
        for event in engine.generate(PROMPT, params):
            accepted += len(getattr(event, "path", ()))
            drafted += len(getattr(event, "nodes", ()))
    return accepted, drafted


def test_a_draft_model_equal_to_the_target_is_always_right_with_the_shared_noise():
    accepted, drafted = rates(DRAWING["the target itself"])
    assert accepted == drafted > 20


@pytest.mark.parametrize("drafter", ["model", "exit", "eagle3"])
def test_drafts_drawn_with_the_shared_noise_say_nothing_of_a_law(drafter):
    engine = engine_with(DRAWING[drafter])
    engine.target.attach(engine.drafter.readers)
    engine.target.observe(PROMPT[:-1])
    for noise, is_stated in ((None, True), (Noise.of_seed(1), False)):
        engine.drafter.couple(noise)
        engine.drafter.start(PROMPT, SAMPLING["temperature"], Noise.of_seed(2).key)
        draft = engine.drafter.propose(PROMPT[-1], 3)
        assert draft.tree.n_nodes > 1
        assert (draft.sampled_from is not None) == is_stated


def test_after_the_replies_with_an_exact_seed_a_drafter_draws_on_its_own_again():
    engine = engine_with(DRAWING["the target itself"])
    own = texts(engine, SAMPLING["temperature"], budget=6)
    texts(engine, SAMPLING["temperature"], budget=6, exact_seed=True)
    engine.target.reset()
    engine.drafter.decoder.reset()
    assert texts(engine, SAMPLING["temperature"], budget=6) == own


def test_a_drafter_draws_anew_in_every_turn():
    """Its noise in a later reply with the same seed is not what it was in the first."""
    keys = []

    class Spy(UniformChain):
        def start(self, prompt, sampling, key):
            super().start(prompt, sampling, key)
            keys.append(tuple(key.tolist()))

    texts(engine_with(lambda target: Spy(VOCAB)), SAMPLING["temperature"], budget=6)
    assert len(set(keys)) == 2
