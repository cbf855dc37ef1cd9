"""Trained heads come back from their checkpoints, and compute in the type of their target."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxspec.device import backend
from mlxspec.drafting.heads import HEADS, head_drafters
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.params import GenerationParams
from mlxspec.trace.events import DraftVerified
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import EAGLE_BIASES, eagle3_network, eagle_network, layer_config
from tests.support.tiny_heads_exit import exit_head
from tests.support.tiny_heads_medusa import medusa_config, medusa_tensors

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]


def stored(network):
    ids = network.target_ids
    tensors = dict(tree_flatten(network.parameters()))
    return tensors if ids is None else tensors | {"target_ids": ids}


def head(kind):
    """A head with random weights, stored in float32."""
    if kind == "medusa":
        config, tensors = medusa_config(MODEL), medusa_tensors(MODEL)
    elif kind == "exit":
        config = {"layer": 1, "hidden_size": 64, "intermediate_size": 64, "threshold": 0.01}
        tensors = stored(exit_head(MODEL))
    elif kind == "eagle":
        config = layer_config(MODEL)
        tensors = stored(eagle_network(MODEL, optional=EAGLE_BIASES))
    else:
        network = eagle3_network(MODEL)
        config, tensors = network.config, stored(network)
    assert mx.float32 in {array.dtype for array in tensors.values()}
    return HeadCheckpoint(kind, config, tensors, kind, {})


NETWORKS = {
    "medusa": lambda drafter: drafter.heads,
    "eagle": lambda drafter: drafter.network,
    "eagle3": lambda drafter: drafter.network,
    "exit": lambda drafter: drafter.head,
}


def watch(drafter, seen):
    """Note the type of all logits that a head computes."""
    holder = drafter.heads if drafter.name == "medusa" else drafter
    method = "_rows" if drafter.name == "exit" else "logits"
    compute = getattr(holder, method)

    def noted(*args):
        logits = compute(*args)
        seen.add(logits.dtype)
        return logits

    object.__setattr__(holder, method, noted)


@each_value(kind=NETWORKS, dtype=[mx.float16, mx.bfloat16])
def test_a_head_computes_in_the_type_of_its_target_on_a_gpu(kind, dtype, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    monkeypatch.setattr(backend, "lacks_accelerate", lambda: False)
    model = tiny_model()
    model.set_dtype(dtype)
    engine = make_engine(model, None)
    params = GenerationParams(max_tokens=6, num_draft_tokens=6)
    (drafter,) = head_drafters(head(kind), engine.target)
    network, seen = NETWORKS[kind](drafter), set()
    assert {array.dtype for _, array in tree_flatten(network.parameters())} == {dtype}
    watch(drafter, seen)
    events = list(engine.generate(PROMPT, params, drafter=drafter))
    assert len(emitted(events)) == 6
    assert any(isinstance(event, DraftVerified) for event in events)
    assert seen == {dtype}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_comes_back_from_its_checkpoint(kind):
    tensors, (network, _) = head(kind).tensors, HEADS[kind]
    again = network.from_checkpoint(head(kind).config, tensors).tensors
    assert again.keys() == tensors.keys()
    assert all(mx.array_equal(again[name], tensors[name]) for name in tensors)
    first = next(iter(tensors))
    with pytest.raises(UnsupportedModelError, match=first):
        network.from_checkpoint(head(kind).config, {**tensors, first: mx.zeros((3, 5))})
    more = network.from_checkpoint(head(kind).config, {**tensors, "other": mx.zeros(2)})
    assert more.tensors.keys() == tensors.keys()


@pytest.mark.parametrize("kind", NETWORKS)
def test_packed_weights_are_read_as_the_numbers_that_they_stand_for(kind, monkeypatch):
    stored, (network, _) = head(kind), HEADS[kind]
    packed, plain = dict(stored.tensors), dict(stored.tensors)
    for name, array in stored.tensors.items():
        if array.ndim == 2 and array.shape[1] % 32 == 0:
            triple = mx.quantize(array, group_size=32, bits=8)
            names = (name, f"{name[:-6]}scales", f"{name[:-6]}biases")
            packed |= dict(zip(names, triple, strict=True))
            plain[name] = mx.dequantize(*triple, group_size=32, bits=8)
    config = {**stored.config, "quantization": {"group_size": 32, "bits": 8}}
    monkeypatch.setattr(backend, "is_cpu", lambda: True)  # packed weights are slow there
    read = network.from_checkpoint(config, packed).tensors
    assert all(mx.array_equal(read[name], plain[name]) for name in plain)
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    kept = network.from_checkpoint(config, packed).tensors
    assert kept.keys() == packed.keys()
    assert mx.uint32 in {array.dtype for array in kept.values()}
