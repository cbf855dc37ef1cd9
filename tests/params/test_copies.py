"""Settings, events, results and errors: copied and pickled they are what they were."""

import copy
import importlib
import pickle
import pkgutil
from dataclasses import asdict

import mlx.core as mx
import pytest

import mlxspec
from mlxspec.batch.open import BatchSettings
from mlxspec.errors import ContextLengthError, MlxspecError
from mlxspec.params import GenerationParams, Grammar, Options, SamplingParams
from tests.support.batches import PROMPTS, batch
from tests.support.tiny import make_engine, tiny_model


def copies(value):
    yield copy.copy(value)
    yield copy.deepcopy(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(value, protocol))


def argmax(logprobs):
    return mx.argmax(logprobs, axis=-1)


SAMPLING = SamplingParams(temperature=0.7, top_k=4, logit_bias={3: -1.0}, xtc_probability=0.5)
SETTINGS = [
    SAMPLING,
    GenerationParams(),
    GenerationParams(sampling=SAMPLING, stop=("a", "b"), stop_tokens=(3,), prediction="abc"),
    GenerationParams(grammar={"type": "object"}),
    GenerationParams(grammar=Grammar.regex("[ab]+")),
    GenerationParams(sampler=argmax),
    Options(),
    BatchSettings(3, 9),
]


@pytest.mark.parametrize("value", SETTINGS, ids=range(len(SETTINGS)))
def test_settings(value):
    for found in copies(value):
        assert found == value
        assert asdict(found) == asdict(value)


def test_events_of_a_reply():
    params = GenerationParams(max_tokens=6, num_draft_tokens=3)
    events = list(make_engine(tiny_model(), None).generate(PROMPTS[0], params))
    for found in copies(events):
        assert found == events


def test_results_of_a_batch():
    def broken(tokens, logits):
        raise KeyError("by the caller")

    sound = batch("pool", PROMPTS[:1], GenerationParams(max_tokens=4))[0]
    for found in copies(sound):
        assert found == sound
    bad = batch(prompts=PROMPTS[:1], params=GenerationParams(logits_processors=(broken,)))[0]
    for found in copies(bad):
        assert (found.tokens, found.finish_reason) == (bad.tokens, "error")
        assert (type(found.error), found.error.args) == (KeyError, ("by the caller",))


def errors():
    """Every error of mlxspec, the library."""
    for module in pkgutil.walk_packages(mlxspec.__path__, "mlxspec."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting, found = [MlxspecError], []
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("mlxspec.")]


def test_errors():
    made = [ContextLengthError("too long", 512), *(kind("what was got") for kind in errors())]
    assert len(made) > 15
    for error in made:
        for found in copies(error):
            assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
