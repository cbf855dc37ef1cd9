"""The plugin for `llm`, with `llm` from PyPI and a tiny model that chats in bytes."""

import json

import pytest

pytest.importorskip("llm", reason="the package llm is not installed")

import llm

from llm_mlxspec.model import MlxspecModel
from llm_mlxspec.sources import add_source, read_sources
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.chat_folders import save_chat_folder
from tests.support.served import MESSAGES, TARGET, TOKENIZER, engine, true_text

GREEDY = {"temperature": 0, "max_tokens": 8}


@pytest.fixture
def model(monkeypatch):
    model = MlxspecModel("mlxspec", None)
    monkeypatch.setitem(vars(model), "_engine", engine())
    return model


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_is_the_text_of_the_target(model, stream):
    response = model.prompt("Hi", stream=stream, **GREEDY)
    assert response.text() == true_text(MESSAGES, length=8)
    assert (response.input_tokens, response.output_tokens) == (
        len(TOKENIZER.apply_chat_template(MESSAGES)),
        8,
    )


def test_options_are_those_of_the_library(model):
    params = GenerationParams(8, SamplingParams(temperature=0.9, top_k=5), seed=4)
    true = engine().generate_text(TOKENIZER.apply_chat_template(MESSAGES), params)
    assert model.prompt("Hi", temperature=0.9, top_k=5, seed=4, max_tokens=8).text() == true
    with pytest.raises(llm.ModelError, match="temperature must be 0 or more"):
        model.prompt("Hi", temperature=-1).text()


def test_a_conversation_goes_on_with_its_cache(model):
    conversation = model.conversation()
    conversation.prompt("Hi", **GREEDY).text()
    second = conversation.prompt("Ho", **GREEDY)
    begin = TOKENIZER.encode(TOKENIZER.render_chat(MESSAGES), add_special_tokens=False)
    said = TARGET.greedy(begin, 8)  # its tokens, as its bytes are no text
    between = "<|im_end|>\n<|im_start|>user\nHo<|im_end|>\n<|im_start|>assistant\n"
    chat = [*begin, *said, *TOKENIZER.encode(between, add_special_tokens=False)]
    assert second.text() == TOKENIZER.decode(TARGET.greedy(chat, 8))
    assert second.response_json["reused_tokens"] >= len(begin) + len(said) - 1


def test_two_conversations_do_not_mix(model):
    first, other = model.conversation(), model.conversation()
    first.prompt("Hi", **GREEDY).text()
    other.prompt("Go", **GREEDY).text()
    reply = true_text(MESSAGES, length=8)
    chat = [*MESSAGES, {"role": "assistant", "content": reply}, {"role": "user", "content": "Ho"}]
    assert first.prompt("Ho", **GREEDY).text() == true_text(chat, length=8)


def test_a_reply_fits_a_schema(model):
    schema = {"enum": [12, 21]}
    assert json.loads(model.prompt("Hi", schema=schema, max_tokens=20).text()) in (12, 21)


def test_a_model_that_was_added_is_there(tmp_path):
    folder = save_chat_folder(tmp_path / "toy")
    (tmp_path / "user").mkdir()
    assert add_source(tmp_path / "user", str(folder)) == "mlxspec/toy"
    assert read_sources(tmp_path / "user") == {"mlxspec": None, "mlxspec/toy": str(folder)}
    (tmp_path / "user" / "mlxspec-models.json").write_text("[1]")
    with pytest.raises(ValueError, match="is no list of models: mend it"):
        read_sources(tmp_path / "user")
