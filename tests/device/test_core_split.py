"""Core split: how many cores share, what runs on which, and that nothing computed is lost."""

import threading
from contextlib import suppress

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.device import backend, blas, core_split
from mlxspec.device.attention import attend
from mlxspec.device.blas import STOCK_BLAS
from mlxspec.device.core_split import WHOLE, Part, each, left_to_blas, together
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams
from tests.support.decoders import (
    EACH,
    PATH,
    PATH_TOKENS,
    TEXT,
    TREE,
    assert_close,
    assert_is_as_if_read_from_nothing,
    make,
)
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

OPENBLAS = "OpenBLAS 0.3.21 (libopenblas.so.0)"


@pytest.fixture
def two_cores(monkeypatch):
    """Two cores that share work, on any machine."""
    monkeypatch.setattr(backend, "num_split_cores", lambda: 2)
    monkeypatch.setattr(core_split, "_split", core_split._CoreSplit())
    threads = blas.blas_threads()
    yield
    blas.set_blas_threads(threads)


def stream_now():
    return str(mx.default_stream(mx.cpu))


# ---- how many ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "threads", "cores", "expected"),
    [
        (OPENBLAS, 1, 2, 1),  # it was told to use one
        (OPENBLAS, 2, 2, 2),
        (OPENBLAS, 3, 3, 0),
        (OPENBLAS, 16, 16, 0),
        ("libblis.so.4", 0, 2, 0),  # nobody knows how many threads it uses
        (STOCK_BLAS, 0, 1, 1),
        (STOCK_BLAS, 0, 2, 2),
        (STOCK_BLAS, 0, 16, 2),
    ],
)
def test_a_core_split_takes_the_place_of_the_threads_of_a_small_machine(
    library, threads, cores, expected, monkeypatch
):
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: True)
    monkeypatch.setattr(backend, "loaded_blas", lambda: library)
    monkeypatch.setattr(backend, "blas_threads", lambda: threads)
    monkeypatch.setattr(backend, "_cores", lambda: cores)
    assert backend.num_split_cores() == expected


def test_a_gpu_and_a_mac_have_no_core_split(monkeypatch):
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: False)
    assert backend.num_split_cores() == 0


@pytest.mark.usefixtures("two_cores")
def test_each_core_leaves_the_other_to_the_other(monkeypatch):
    set_to = []
    monkeypatch.setattr(core_split, "blas_threads", lambda: 2)
    monkeypatch.setattr(core_split, "set_blas_threads", set_to.append)
    assert core_split.count() == core_split.count() == 2
    assert set_to == [1]
    with suppress(KeyError), left_to_blas():
        assert (core_split.count(), set_to) == (0, [1, 2])
        assert each(lambda part: part) == [WHOLE]
        raise KeyError
    assert (core_split.count(), set_to) == (2, [1, 2, 1])


@pytest.mark.skipif(not blas.blas_threads(), reason="OpenBLAS is not installed")
def test_openblas_uses_the_threads_it_is_given():
    before = blas.blas_threads()
    try:
        blas.set_blas_threads(1)
        assert blas.blas_threads() == 1
    finally:
        blas.set_blas_threads(before)


# ---- what runs where ---------------------------------------------------------------------------


@each_value(of=[1, 2, 3], height=[0, 1, 2, 7, 64])
def test_the_parts_of_a_matrix_are_all_of_it_in_order(height, of):
    parts = [range(height)[Part(core, of).rows(height)] for core in range(of)]
    assert [row for part in parts for row in part] == list(range(height))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.usefixtures("two_cores")
def test_every_core_computes_its_part_in_a_stream_of_its_own():
    seen = []

    def run(part):
        seen.append((part, stream_now()))
        return part.core

    assert each(run) == [0, 1]
    (second, there), (first, here) = seen
    assert (first, second) == (Part(0, 2), Part(1, 2))
    assert here == stream_now() != there
    assert together(stream_now, stream_now) == (here, there)


# ---- what is computed --------------------------------------------------------------------------


@EACH
@pytest.mark.usefixtures("two_cores")
def test_two_cores_say_what_the_target_says(family, kind):
    decoder, truth = make(family, kind)
    decoder.observe(TEXT[:20])
    logits = decoder.logits(decoder.forward_tree(TREE))
    assert_close(logits[PATH[-1]], truth([*TEXT[:20], *PATH_TOKENS]))
    decoder.commit(PATH)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:20] + PATH_TOKENS, truth)


@pytest.mark.usefixtures("two_cores")
def test_a_reply_in_two_cores_is_the_target_s_in_every_thread():
    model, prompt = tiny_model(), [3, 7, 1, 3, 7, 1, 4, 3]
    replies = []

    def work():
        engine = make_engine(model, SuffixDrafter())
        replies.append(emitted(engine.generate(prompt, GenerationParams(max_tokens=24))))

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    assert replies == [Target(model).greedy(prompt, 24)] * 3


@pytest.mark.usefixtures("two_cores")
@each_value(mask=["none", "causal", "tree"], heads=[(9, 3), (4, 2), (4, 4), (3, 1)])
def test_attention_over_many_keys_is_shared_by_heads(heads, mask, monkeypatch):
    num_heads, num_kv_heads = heads
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: True)
    keys = [mx.random.key(n) for n in range(4)]
    S, L, D = 1500, 5, 64
    queries = mx.random.normal((2, num_heads, L, D), key=keys[0])
    past = [mx.random.normal((2, num_kv_heads, S, D), key=key) for key in keys[1:3]]
    seen = {
        "none": None,
        "causal": "causal",
        "tree": mx.random.uniform(shape=(2, 1, L, S), key=keys[3]) < 0.7,
    }[mask]
    got = attend(queries, *past, scale=0.125, mask=seen)
    expected = mx.fast.scaled_dot_product_attention(queries, *past, scale=0.125, mask=seen)
    np.testing.assert_allclose(got, expected, atol=1e-5)
