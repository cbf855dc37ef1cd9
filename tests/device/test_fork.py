"""A process that is forked from one that has computed: MLX has no threads there, and would hang."""

import multiprocessing
import os
import pickle
import signal

import pytest

from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.tiny import ToyTokenizer, emitted, make_engine, tiny_model
from tests.support.truth import Target

PROMPT, PARAMS = [3, 7, 1], GenerationParams(max_tokens=4, sampling=SamplingParams(top_k=3))
TRUE = Target(tiny_model()).greedy(PROMPT, 4)


@pytest.fixture(scope="module")
def engine():
    engine = make_engine(tiny_model(), None)
    assert emitted(engine.generate(PROMPT, PARAMS)) == TRUE
    return engine


def in_fork(act):
    """What a function returns or raises in a fork of this process."""
    read, write = os.pipe()
    if not (process := os.fork()):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest has one of its own
        signal.alarm(5)
        try:
            found = act()
        except Exception as error:
            found = error
        os.write(write, pickle.dumps(found))
        os._exit(0)
    os.close(write)
    with open(read, "rb") as told:
        found = told.read()
    os.waitpid(process, 0)
    assert found, "it hangs"
    return pickle.loads(found)


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: list(engine.generate(PROMPT, PARAMS)),
        lambda engine: list(engine.generate_batch([PROMPT], PARAMS)),
        lambda engine: engine.open_batch().step(),
        lambda engine: engine.close(),
        lambda engine: make_engine(engine.target.model, None),
    ],
    ids=["generate", "generate_batch", "open_batch", "close", "another engine"],
)
def test_an_engine_says_in_a_fork_that_it_cannot_compute(engine, use):
    error = in_fork(lambda: use(engine))
    assert isinstance(error, UnsupportedOperationError)
    assert "get_context('spawn')" in str(error)
    assert emitted(engine.generate(PROMPT, PARAMS)) == TRUE


def test_a_fork_may_drop_an_engine_that_it_has_of_its_parent():
    def drop():
        own.clear()
        return "dropped"

    own = [make_engine(tiny_model(), None)]
    list(own[0].generate(PROMPT, PARAMS))
    assert in_fork(drop) == "dropped"


def test_a_fork_reads_texts_with_a_tokenizer(engine):
    """As the workers of a data loader do."""
    assert in_fork(lambda: engine.tokenizer.encode("abc")) == [0, 1, 2]
    with multiprocessing.get_context("fork").Pool(1) as workers:
        assert workers.map(ToyTokenizer(24).encode, ["abc", "c"]) == [[0, 1, 2], [2]]


def write(params):
    return emitted(make_engine(tiny_model(), None).generate(PROMPT, params))


def test_a_process_that_is_spawned_writes_the_same_reply(engine):
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.apply(write, (PARAMS,)) == TRUE
