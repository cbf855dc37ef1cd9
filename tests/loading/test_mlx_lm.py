"""Models that mlx-lm loads are targets: from a folder, by `wrap`, with adapters, examined once."""

import copy
import gc
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from types import ModuleType

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from mlx import nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load as mlx_lm_load

import mlxspec
from mlxspec import GenerationParams
from mlxspec.adapted.model import AdaptedModel
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.loading import load_model, mlx_lm
from mlxspec.models import Model
from tests.support.gguf_models import BASE, random_model, write
from tests.support.model_folders import save_folder, save_json
from tests.support.qwen3_folder import save_adapter
from tests.support.qwen3_folder import save_qwen3 as save
from tests.support.tiny import emitted

PROMPT = [5, 9, 2, 7, 11, 8, 4, 12]
LENGTH = 24


pytestmark = pytest.mark.usefixtures("shared_home")


def greedy(module, eos, prompt=PROMPT, length=LENGTH):
    """mlx-lm's own greedy text, the truth."""
    tokens = []
    for token, _ in generate_step(mx.array(prompt), module, max_tokens=length):
        tokens.append(token)
        if token in eos:
            break
    return tokens


def first_logits(module):
    return np.array(module(mx.array([PROMPT]), cache=make_prompt_cache(module)), np.float32)


def text_of(engine):
    return emitted(engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH)))


@pytest.mark.parametrize("options", [{}, {"max_kv_size": 24, "kv_bits": 8}], ids=["", "cache"])
def test_a_folder_of_a_type_without_a_port_writes_one_text_with_drafts_and_without(
    tmp_path, options
):
    folder = save(tmp_path / "model", head_dim=32)
    text, drafted = (
        text_of(mlxspec.load(folder, drafter=drafter, **options)) for drafter in ("none", "pool")
    )
    assert text == drafted


def test_a_gguf_file_with_packed_weights_writes_the_text_of_mlx_lm_on_their_numbers(tmp_path):
    config = BASE | {"model_type": "qwen3"}
    model, name = random_model(config), "model.layers.0.mlp.up_proj.weight"
    raw = quantize(np.array(model.layers[0].mlp.up_proj.weight), GGMLQuantizationType.Q8_0)
    packed = {name: (raw, GGMLQuantizationType.Q8_0)}
    loaded = load_model(path := write(tmp_path / "m.gguf", config, model, {}, packed=packed))
    weights = mx.array(dequantize(raw, GGMLQuantizationType.Q8_0))
    model.load_weights([(name, weights)], strict=False)
    tokens = mx.array([PROMPT])
    assert mx.allclose(loaded.model.source(tokens), model(tokens), atol=1e-4)
    engine = mlxspec.load(path, drafter="pool")
    assert text_of(engine) == greedy(model, engine.tokenizer.eos_token_ids)


@pytest.fixture
def loaded(tmp_path):
    """A model and its tokenizer, as mlx-lm loads them."""
    return mlx_lm_load(str(save(tmp_path / "model")))


def test_a_model_has_the_same_logits_in_an_engine_and_the_same_parts_after_it(loaded):
    module, tokenizer = loaded
    kinds, logits = [type(part) for part in module.modules()], first_logits(module)
    for name in ("pool", "none"):
        engine = mlxspec.wrap(module, tokenizer, drafter=name)
        assert [type(part) for part in module.modules()] != kinds
        assert np.array_equal(first_logits(module), logits)
        engine.close()
        del engine
        gc.collect()
        assert [type(part) for part in module.modules()] == kinds
        assert np.array_equal(first_logits(module), logits)


def test_two_engines_and_mlx_lm_in_turns_all_write_its_text(loaded):
    module, tokenizer = loaded
    truth = greedy(module, tokenizer.eos_token_ids)
    engines = [mlxspec.wrap(module, tokenizer, drafter=name) for name in ("pool", "suffix")]
    assert engines[0].target.model is engines[1].target.model
    params = GenerationParams(max_tokens=LENGTH)
    replies = [engine.generate(PROMPT, params) for engine in engines]
    told = [[], []]
    theirs = []
    steps = generate_step(mx.array(PROMPT), module, max_tokens=len(truth))
    for *events, step in zip_longest(*replies, steps):
        for of_reply, event in zip(told, events, strict=True):
            of_reply += [event] if event else []
        theirs += [step[0]] if step else []
    assert [emitted(events) for events in told] == [truth, truth]
    assert theirs == truth == greedy(module, tokenizer.eos_token_ids)


def test_a_model_is_wrapped_and_used_in_other_threads_while_a_reply_is_held(loaded):
    module, tokenizer = loaded
    truth = greedy(module, tokenizer.eos_token_ids)
    with ThreadPoolExecutor(1) as other:
        engine = other.submit(mlxspec.wrap, module, tokenizer, drafter="pool").result()
        held = engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH))
        begun = [next(held) for _ in range(3)]
        assert other.submit(text_of, engine).result() == truth
    assert emitted([*begun, *held]) == truth


def test_a_model_is_examined_once_on_a_machine(tmp_path, home, monkeypatch):
    folder = save(tmp_path / "model")
    lines = []
    assert load_model(folder, say=lines.append).model.draft_support == "tree"
    assert [line.split()[0] for line in lines] == ["comparing", "compared"]
    with monkeypatch.context() as patch:
        patch.setattr(mlx_lm, "examine", None)
        assert load_model(folder, say=lines.append).model.draft_support == "tree"
    assert len(lines) == 2
    (key,) = json.loads((home / "admitted.json").read_text())
    save_json(home / "admitted.json", {key: {"support": "all"}})  # nobody wrote that
    load_model(folder, say=lines.append)
    assert len(lines) == 4


def test_a_model_that_computes_something_else_is_refused(tmp_path, home, monkeypatch):
    folder = save(tmp_path / "model")
    logits = AdaptedModel.logits
    monkeypatch.setattr(AdaptedModel, "logits", lambda self, hidden: 2 * logits(self, hidden))
    with pytest.raises(UnsupportedModelError, match="use mlx-lm itself"):
        load_model(folder)


def test_the_port_chooses_whose_code_runs(tmp_path):
    folder = save_folder(tmp_path / "model")
    assert isinstance(load_model(folder).model, Model)
    assert isinstance(load_model(folder, port="own").model, Model)
    theirs = mlxspec.load(folder, port="mlx-lm", drafter="pool")
    assert isinstance(theirs.target.model, AdaptedModel)
    assert text_of(theirs) == text_of(mlxspec.load(folder, port="own", drafter="pool"))


def test_what_needs_a_port_of_our_own_says_so(tmp_path):
    folder = save(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match="qwen3"):
        load_model(folder, port="own")
    with pytest.raises(UnsupportedOperationError, match="port 'own'"):
        load_model(folder).own  # noqa: B018


def test_code_that_comes_with_a_model_never_runs(tmp_path):
    folder = save(tmp_path / "model", model_file="evil.py")
    (folder / "evil.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(UnsupportedModelError, match="cannot load it"):
        load_model(folder)


@pytest.mark.parametrize(
    ("model_type", "named"),
    [
        *((model_type, "cannot load it") for model_type in ("no_such_type", "../evil", "cache")),
        ("olmo", "install ai2-olmo"),  # its file ends the process
    ],
)
def test_a_type_that_mlx_lm_cannot_run_is_refused(tmp_path, model_type, named):
    with pytest.raises(UnsupportedModelError, match=named):
        load_model(save(tmp_path / "model", model_type=model_type))


def test_adapters_change_the_model_as_in_mlx_lm(tmp_path):
    folder = save(tmp_path / "model")
    adapter = save_adapter(tmp_path / "adapter")
    stated = json.loads((adapter / CONFIG).read_text())
    module, _ = mlx_lm_load(str(folder), adapter_path=str(adapter))
    # settings that mlx-lm does not know do not matter
    save_json(adapter / CONFIG, {**stated, "grad_checkpoint": True, "new": [1]})
    engine = mlxspec.load(folder, adapter=adapter, drafter="pool")
    text = text_of(engine)
    assert text == greedy(module, engine.tokenizer.eos_token_ids)
    assert text != text_of(mlxspec.load(folder, drafter="pool"))


CONFIG, WEIGHTS = "adapter_config.json", "adapters.safetensors"
OTHER_SHAPE = {"model.layers.0.self_attn.q_proj.lora_a": mx.zeros((3, 3))}
PEFT = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "does not exist"),
        (lambda folder: save_json(folder / CONFIG, PEFT), "which is one of PEFT: merge"),
        (lambda folder: (folder / CONFIG).write_text("{"), "give a folder"),
        (lambda folder: (folder / WEIGHTS).rename(folder / "b"), "give a folder"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"cut"), "give a folder"),
        (lambda folder: mx.save_safetensors(str(folder / WEIGHTS), OTHER_SHAPE), "lora_a"),
    ],
    ids=["not there", "of PEFT", "damaged", "no weights", "cut", "of other shapes"],
)
def test_an_adapter_that_cannot_be_loaded_is_blamed_and_not_the_model(tmp_path, harm, words):
    folder, adapter = save(tmp_path / "model"), save_adapter(tmp_path / "adapter")
    harm(adapter)
    with pytest.raises(UnsupportedModelError, match=f"load the adapter .*{words}") as caught:
        load_model(folder, adapter=adapter)
    assert "as a model" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"port": "own"}, ValueError), ({"colour": 1}, TypeError), ({"depth": 0}, ValueError)],
)
def test_wrap_refuses_arguments_by_name(loaded, arguments, error):
    with pytest.raises(error, match=next(iter(arguments))):
        mlxspec.wrap(*loaded, **arguments)


def test_a_model_and_a_tokenizer_of_another_kind_are_refused(loaded):
    module, tokenizer = loaded
    with pytest.raises(ValueError, match="model"):
        mlxspec.wrap("qwen3", tokenizer)
    with pytest.raises(UnsupportedModelError, match="fast tokenizer"):
        mlxspec.wrap(module, str.encode)


def test_a_kind_of_weights_is_examined_on_its_own(loaded):
    module, _ = loaded
    keys = {mlx_lm._key(module)}
    module.set_dtype(mx.bfloat16)
    keys.add(mlx_lm._key(module))
    nn.quantize(module, group_size=32, bits=8)
    keys.add(mlx_lm._key(module))
    assert len(keys) == 3


@pytest.mark.parametrize("place", ["no_such_module", "typed_in"])
def test_a_model_without_a_source_is_examined_at_each_load(loaded, home, monkeypatch, place):
    module, tokenizer = loaded
    monkeypatch.setitem(sys.modules, "typed_in", ModuleType("typed_in"))
    module.__class__ = type("Model", (type(module),), {"__module__": place})
    lines = []
    engine = mlxspec.wrap(module, tokenizer, drafter="none", say=lines.append)
    assert engine.target.draft_support == "tree"
    assert "at each load" in lines[0]
    assert not (home / "admitted.json").exists()


def test_a_copy_of_a_wrapped_model_is_a_target_of_its_own(loaded):
    module, tokenizer = loaded
    first = mlxspec.wrap(module, tokenizer, drafter="none")
    text = text_of(first)
    other = copy.deepcopy(module)
    other.model.embed_tokens.weight = -other.model.embed_tokens.weight[::-1]
    second = mlxspec.wrap(other, tokenizer, drafter="pool")
    assert second.target.model.source is other
    assert text_of(second) == greedy(other, second.tokenizer.eos_token_ids)
    assert text_of(first) == text


def test_the_end_tokens_are_those_of_the_last_wrap(loaded):
    module, tokenizer = loaded
    engines = []
    for ends in ({7, 8}, {9}):
        tokenizer.eos_token_ids = ends
        engines.append(mlxspec.wrap(module, tokenizer, drafter="none"))
    assert engines[1].target.eos_token_ids == engines[1].tokenizer.eos_token_ids
    assert 9 in engines[1].target.eos_token_ids
    assert 7 not in engines[1].target.eos_token_ids


def test_weights_that_are_lazy_in_another_thread_are_refused_with_what_to_do(tmp_path):
    module, tokenizer = mlx_lm_load(str(save(tmp_path / "model")), lazy=True)
    with ThreadPoolExecutor(1) as pool:
        wrapping = pool.submit(mlxspec.wrap, module, tokenizer, drafter="none")
        with pytest.raises(UnsupportedModelError, match=r"mx.eval\(model.parameters\(\)\)"):
            wrapping.result()
    assert mlxspec.wrap(module, tokenizer, drafter="none").target.draft_support == "tree"
