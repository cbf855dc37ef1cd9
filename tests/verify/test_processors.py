"""Functions of a caller's own along a tree: against NumPy, by hand, and by exact enumeration."""

from collections import Counter
from contextlib import closing
from itertools import product

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.measure.lossless import prove
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import GenerationStarted
from mlxspec.verify.noise import Noise
from tests.engine.test_interrupts import LooksAhead
from tests.support.adversaries import Adversary, RandomTrees, UniformChain
from tests.support.batches import DRAFTERS as BATCH_DRAFTERS
from tests.support.batches import PROMPTS
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target, draw_by_hand, exact_distribution

VOCAB, LENGTH = 24, 16
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
MODEL = tiny_model(vocab_size=VOCAB)
TRUTH = Target(MODEL)
DRAFTERS = {
    "none": NoDrafter,
    "random trees": lambda: RandomTrees(VOCAB),
    "uniform chain": lambda: UniformChain(VOCAB),
    "model": lambda: DraftModelDrafter(Decoder(tiny_model(seed=7)), VOCAB),
}


def favours(tokens):
    """A token that depends on the whole text."""
    return sum(place * token for place, token in enumerate(tokens, 1)) % VOCAB


def raise_one(tokens, logits):
    logits[:, favours(tokens.tolist())] += 6.0
    return logits


def forbid_the_last(tokens, logits):
    return mx.where(mx.arange(VOCAB) == tokens[-1], -mx.inf, logits)


PROCESSORS = (raise_one, forbid_the_last)


def by_hand(text):
    """Logits after both processors, in NumPy."""
    logits = TRUTH.logits(tuple(text)).copy()
    logits[favours(text)] += 6.0
    logits[text[-1]] = -np.inf
    return logits


def reply(drafter, prompt=PROMPT, **settings):
    engine = make_engine(MODEL, DRAFTERS[drafter]())
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6, **settings)
    return emitted(engine.generate(prompt, params))


# ---- processors ------------------------------------------------------------------------------


def second_best(logprobs):
    return mx.argsort(-logprobs, axis=-1)[:, 1]


@pytest.mark.parametrize(("sampler", "place"), [(None, 0), (second_best, 1)])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_processors_have_the_text_of_each_node_and_a_sampler_chooses_every_token(
    drafter, sampler, place
):
    text = list(PROMPT)
    for _ in range(LENGTH):
        text.append(int(np.argsort(-by_hand(text))[place]))
    said = reply(drafter, logits_processors=PROCESSORS, sampler=sampler)
    assert said == text[len(PROMPT) :] != TRUTH.greedy(PROMPT, LENGTH)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_sampled_reply_follows_the_law_after_the_processors(drafter):
    """The draw by hand, position by position, from the law that NumPy computes."""
    sampling = SamplingParams(temperature=0.9, top_k=9, presence_penalty=0.4)
    noise, text = Noise.of_seed(5), PROMPT
    said = reply(drafter, logits_processors=PROCESSORS, sampling=sampling, seed=5, exact_seed=True)
    for token in said:
        here = exact_distribution(by_hand(text), sampling, text, text[len(PROMPT) :])
        if drafter != "uniform chain":  # it knows nothing of the noise
            assert token == draw_by_hand(here, noise.at(len(text)).gumbel(1, VOCAB)[0])[0]
        assert here[token] > 0
        text = [*text, token]
    assert len(set(said)) > 4


def test_every_processor_is_called_once_a_node_with_what_the_one_before_returned():
    seen = []

    def first(tokens, logits):
        seen.append((tokens.tolist(), tokens.dtype, logits.shape, logits.dtype))
        return mx.zeros_like(logits)

    def second(tokens, logits):
        assert logits.tolist() == [[0.0] * VOCAB]
        return logits.at[:, 9].add(1)

    engine = make_engine(MODEL, DRAFTERS["random trees"]())
    params = GenerationParams(max_tokens=8, logits_processors=(first, second))
    events = list(engine.generate(PROMPT, params))
    assert emitted(events) == [9] * 8
    num_nodes = sum(1 + len(event.nodes) for event in events if event.t == "draft")
    num_plain = sum(event.t == "plain" for event in events)
    assert len(seen) == num_nodes + num_plain > 8
    assert {(dtype, shape, kind) for _, dtype, shape, kind in seen} == {
        (mx.int32, (1, VOCAB), mx.float32)
    }


def test_a_round_ahead_waits_for_functions_that_want_the_token_before():
    engine = make_engine(MODEL, NoDrafter(), budget=LooksAhead())
    params = GenerationParams(max_tokens=LENGTH, logits_processors=PROCESSORS)
    assert emitted(engine.generate(PROMPT, params)) == reply("none", logits_processors=PROCESSORS)


def test_in_a_batch_every_reply_has_functions_of_its_own():
    engine = make_engine(MODEL, BATCH_DRAFTERS["random trees"]())
    kinds = [{"logits_processors": PROCESSORS}, {}, {"sampler": lambda logprobs: mx.array([2])}]
    params = [GenerationParams(max_tokens=6, **kinds[i % 3]) for i in range(len(PROMPTS))]
    replies = list(engine.generate_batch(PROMPTS, params, batch_size=3))
    for prompt, own, found in zip(PROMPTS, params, replies, strict=True):
        alone = make_engine(MODEL, NoDrafter())
        assert list(found.tokens) == emitted(alone.generate(prompt, own))


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "returned NoneType"),
        (mx.zeros((VOCAB,)), r"returned an array of the shape \(24,\)"),
        (mx.zeros((1, 3)), r"shape \(1, 3\)"),
    ],
    ids=str,
)
def test_a_processor_that_returns_no_logits_is_named(result, told):
    def mine(tokens, logits):
        return result

    with pytest.raises(ValueError, match=f"logits processor 'mine' .*{told}.* \\(1, 24\\)"):
        reply("none", logits_processors=(mine,))


def test_after_a_processor_that_raises_the_engine_replies_as_before():
    def breaks(tokens, logits):
        if len(tokens) > len(PROMPT) + 3:
            raise KeyError("mine")
        return logits

    engine = make_engine(MODEL, DRAFTERS["random trees"]())
    with pytest.raises(KeyError):
        list(engine.generate(PROMPT, GenerationParams(logits_processors=(breaks,))))
    params = GenerationParams(max_tokens=LENGTH)
    assert emitted(engine.generate(PROMPT, params)) == TRUTH.greedy(PROMPT, LENGTH)


# ---- samplers --------------------------------------------------------------------------------


def test_a_sampler_is_given_the_logprobs_of_one_node_after_the_processors():
    seen = []

    def sampler(logprobs):
        seen.append(logprobs)
        return mx.argmax(logprobs, axis=-1)

    reply("none", logits_processors=PROCESSORS, sampler=sampler)
    logits = by_hand(PROMPT)
    expected = logits - np.log(np.exp(logits).sum())
    assert (seen[0].shape, seen[0].dtype) == ((1, VOCAB), mx.float32)
    np.testing.assert_allclose(seen[0][0], expected, atol=1e-4)


class EveryChild(Adversary):
    """Continuations of the root, as many as are asked for."""

    def propose(self, root, budget):
        tokens = range(min(budget, 3))
        return Draft.from_lists([root, *tokens], [-1, *[0] * len(tokens)], ["all"] * len(tokens))


class Script:
    """A sampler whose draws are read off a list, and 0 behind it; knows how probable they were."""

    def __init__(self, choices):
        self.choices, self.prob, self.calls = list(choices), 1.0, 0

    def __call__(self, logprobs):
        if self.calls == len(self.choices):
            self.choices.append(0)
        token = self.choices[self.calls]
        self.calls += 1
        self.prob *= float(mx.exp(logprobs[0, token]))
        return mx.array([token])

    def following(self):
        """The next list in the order of counting, or None behind the last."""
        choices = list(self.choices)
        while choices and choices[-1] == 2:
            choices.pop()
        return [*choices[:-1], choices[-1] + 1] if choices else None


def two_tokens(model, prompt, drafter, sampler):
    engine, said = make_engine(model, drafter), []
    params = GenerationParams(max_tokens=3, num_draft_tokens=5, sampler=sampler)
    with closing(engine.generate(prompt, params)) as events:
        for event in events:
            said += [token.token for token in getattr(event, "emit", ())]
            if len(said) >= 2:
                break
    return tuple(said[:2])


@pytest.mark.parametrize("make_drafter", [NoDrafter, EveryChild, lambda: UniformChain(3, length=2)])
def test_the_joint_law_of_a_sampler_is_the_product_of_its_own(make_drafter):
    """Summed over all that the sampler can draw, at nodes that become text and at others."""
    model, prompt = tiny_model(vocab_size=3, seed=2), [1, 2]
    found, choices = Counter(), []
    while choices is not None:
        sampler = Script(choices)
        said = two_tokens(model, prompt, make_drafter(), sampler)
        found[said] += sampler.prob
        choices = sampler.following()
    truth = Target(model)
    for text in product(range(3), repeat=2):
        steps = [
            truth.distribution((*prompt, *text[:i]), SamplingParams(temperature=1.0), 2)
            for i in range(2)
        ]
        prob = np.prod([step[token] for step, token in zip(steps, text, strict=True)])
        assert found[text] == pytest.approx(prob, abs=1e-5)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (mx.array([1, 2]), r"returned an array of the shape \(2,\); it must return one token"),
        ("a", "returned str"),
        (mx.array([VOCAB]), "chose token 24; allowed are 0 to 23"),
        (-1, "chose token -1; allowed are 0 to 23"),
    ],
    ids=str,
)
def test_a_sampler_that_returns_no_token_is_told_so(result, told):
    with pytest.raises(ValueError, match=told):
        reply("none", sampler=lambda logprobs: result)


def test_a_number_is_a_token_too():
    assert reply("random trees", sampler=lambda logprobs: 7) == [7] * LENGTH


# ---- what is told of them --------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "random trees", "model"])
def test_the_logits_of_every_emitted_token_are_told(drafter):
    told = []
    settings = {"logits_processors": PROCESSORS, "sampling": SamplingParams(logit_bias={2: 1.0})}
    said = reply(drafter, on_logits=lambda *round: told.append(round), **settings)
    assert [token for tokens, _ in told for token in tokens] == said
    rows = np.concatenate([np.array(logits) for _, logits in told])
    for index, row in enumerate(rows):
        expected = by_hand([*PROMPT, *said[:index]])
        expected[2] += 1
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_the_first_event_names_them():
    engine = make_engine(MODEL, NoDrafter())
    params = GenerationParams(
        max_tokens=1,
        logits_processors=PROCESSORS,
        sampler=second_best,
        sampling=SamplingParams(top_k=3),
    )
    started = next(iter(engine.generate(PROMPT, params)))
    assert isinstance(started, GenerationStarted)
    assert started.sampling == {
        "temperature": 0.0,
        "top_k": 3,
        "logits_processors": ["raise_one", "forbid_the_last"],
        "sampler": "second_best",
    }
    assert started.lossless == "sampled"


def test_what_a_sampler_drew_cannot_be_proved():
    engine = make_engine(MODEL, NoDrafter())
    with pytest.raises(ValueError, match="a sampled reply is one draw of many"):
        prove(engine, PROMPT, [1], GenerationParams(sampler=second_best))


@pytest.mark.parametrize("step", [1, 3, None, 10_000])
def test_the_prompt_is_read_in_steps_of_the_size_asked_for(step):
    prompt = [token % VOCAB for token in range(1200 if step in (None, 10_000) else 9)]
    model = tiny_model(vocab_size=VOCAB, max_position_embeddings=2000)
    engine = make_engine(model, NoDrafter())
    params = GenerationParams(max_tokens=1, prefill_step_size=step)
    done = [event.done for event in engine.generate(prompt, params) if event.t == "prefill"]
    steps = np.diff([1, *done])
    assert steps.max() == min(step or 512, 512)
    assert done[-1] == len(prompt)
