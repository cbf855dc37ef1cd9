"""The default model, loaded as a user loads it: known ids, known words, a correct answer."""

import mlx.core as mx
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.loading import load_model
from mlxspec.loading.fetch.default_model import SHA256, default_model_path
from mlxspec.loading.gguf.file import read_tensors
from mlxspec.loading.gguf.header import read_header


@pytest.fixture(scope="module")
def loaded():
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
