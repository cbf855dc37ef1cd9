"""The default model, loaded as a user loads it: ids, words, a right answer, MLX-LM's logits."""

import dataclasses

import mlx.core as mx
import mlx_lm.models.llama
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec.decoder.decoder import Decoder
from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import SHA256, default_model_path, has_default_model
from mlxspec.loading.gguf.file import read_tensors
from mlxspec.loading.gguf.header import read_header
from mlxspec.models import build_model
from tests.support.device_facts import believed
from tests.support.halves import assert_as_near, errors
from tests.support.reference import ConcatCache, path_to, tree_masks

pytestmark = pytest.mark.skipif(
    not has_default_model(), reason="the default model was not downloaded"
)
TEXT = "The old lighthouse keeper climbed the 217 steps every evening, and every evening he"


@pytest.fixture(scope="module")
def loaded():
    with believed("cpu"):  # what would stay packed, or be in half precision, is float32 there
        return load_model()


def test_the_model_is_the_one_expected(loaded):
    assert (loaded.name, loaded.revision) == ("SmolLM2-135M-Instruct", SHA256)
    assert loaded.config.num_hidden_layers == 30
    assert loaded.tokenizer.vocab_size == loaded.config.vocab_size == 49152


def test_its_tensors_are_those_that_mlx_reads():
    path = default_model_path()
    ours = read_tensors(read_header(path).tensors)
    theirs = mx.load(str(path))
    assert ours.keys() == theirs.keys()
    assert all(mx.array_equal(ours[name], array) for name, array in theirs.items())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("<|endoftext|><|im_start|><|im_end|>", [0, 1, 2]),
        ("The capital of France is", [504, 3575, 282, 4649, 314]),
    ],
)
def test_known_texts_have_the_ids_published_for_them(loaded, text, tokens):
    assert loaded.tokenizer.encode(text) == tokens


def test_text_comes_back_as_it_was(loaded):
    text = " naïve 漢字 🙂👍🏽\n\n\tx  y ١٢٣ ½ \n"
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)) == text


def test_a_chat_is_framed_by_its_template(loaded):
    tokens = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    text = loaded.tokenizer.decode(tokens, keep_special=True)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert loaded.tokenizer.eos_token_ids == (0, 2)


def test_it_knows_the_capital_of_france(own_facts, loaded):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    decoder = Decoder(loaded.model)
    decoder.observe(loaded.tokenizer.apply_chat_template(question))
    reply: list[int] = []
    while len(reply) < 20:
        token = int(mx.argmax(decoder.next_logits()).item())
        if token in loaded.tokenizer.eos_token_ids:
            break
        reply.append(token)
        decoder.observe([token])
    assert loaded.tokenizer.decode(reply) == "The capital of France is Paris."


def mlx_lm_model(model, dtype=mx.float32):
    args = mlx_lm.models.llama.ModelArgs.from_dict(dataclasses.asdict(model.config))
    theirs = mlx_lm.models.llama.Model(args)
    weights = tree_flatten(model.parameters())
    theirs.load_weights([(name, array.astype(dtype)) for name, array in weights], strict=True)
    return theirs


@pytest.fixture(scope="module")
def theirs(loaded):
    return mlx_lm_model(loaded.model)


@pytest.fixture(scope="module")
def tokens(loaded):
    return loaded.tokenizer.encode(TEXT)


def test_a_prompt_gives_the_logits_of_mlx_lm(loaded, theirs, tokens):
    prompt = mx.array([tokens])
    hidden, _ = loaded.model.hidden_states(prompt, ConcatCache(), 0, {None: "causal"})
    logits = np.array(loaded.model.logits(hidden))
    np.testing.assert_allclose(logits, np.array(theirs(prompt)), atol=1e-4)


def test_a_tree_gives_each_node_the_logits_of_mlx_lm_on_its_path(loaded, theirs, tokens):
    model, cache, n_past = loaded.model, ConcatCache(), len(tokens) - 1
    nodes, parents = [tokens[-1], 436, 253, 617, 253], [-1, 0, 0, 1, 1]
    model.hidden_states(mx.array([tokens[:-1]]), cache, 0, {None: "causal"})
    depths = [len(path_to(parents, node)) - 1 for node in range(len(nodes))]
    positions = mx.array(depths, mx.int32) + n_past
    masks = tree_masks(model, n_past, parents)
    hidden, _ = model.hidden_states(mx.array([nodes]), cache, positions, masks)
    logits = np.array(model.logits(hidden)[0])
    for node in range(len(nodes)):
        line = tokens[:-1] + [nodes[other] for other in path_to(parents, node)]
        expected = np.array(theirs(mx.array([line]))[0, -1])
        np.testing.assert_allclose(logits[node], expected, atol=1e-4)


def test_in_bfloat16_a_prompt_is_as_near_to_the_truth_as_in_mlx_lm(loaded, tokens):
    model, prompt = build_model(loaded.config), mx.array([tokens])
    weights = tree_flatten(loaded.model.parameters())
    model.load_weights([(name, array.astype(mx.bfloat16)) for name, array in weights])
    hidden, _ = model.hidden_states(prompt, ConcatCache(), 0, {None: "causal"})
    ours, theirs = model.logits(hidden)[0], mlx_lm_model(model, mx.bfloat16)(prompt)[0]
    assert ours.dtype == theirs.dtype == mx.bfloat16
    truth = np.array(mlx_lm_model(model)(prompt)[0])
    near, as_near = (
        errors(np.array(logits.astype(mx.float32)), truth) for logits in (ours, theirs)
    )
    assert_as_near(near, as_near)
