"""Models of mlx-lm in the calls of mlx-lm, and a script that changes its imports alone."""

import copy
import gc
import weakref
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

import mlxspec
from mlxspec import compat
from mlxspec.compat import engines
from mlxspec.drafting import auto
from mlxspec.errors import UnsupportedModelError
from tests.support.qwen3_folder import save_adapter, save_qwen3
from tests.support.tiny_adapted import source as adapted_source

PEER = SimpleNamespace(
    **{
        name: getattr(import_module(f"mlx_lm.{module}"), name)
        for module, names in {
            "utils": "load",
            "sample_utils": "make_sampler make_logits_processors",
            "models.cache": "make_prompt_cache",
            "generate": "generate generate_step stream_generate batch_generate",
        }.items()
        for name in names.split()
    }
)
PROMPT = [5, 9, 2, 7, 11, 8, 4, 12]
LENGTH = 20
PACKED = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_qwen3(tmp_path_factory.mktemp("qwen3") / "model", head_dim=32)


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(auto, "_TOKENS_PER_PROMPT", 4)  # of the trials by which a drafter is chosen
        yield


def loaded(folder, load=PEER.load):
    """A model whose replies end at `max_tokens` alone."""
    model, tokenizer = load(str(folder))
    tokenizer.eos_token_ids = ()
    return model, tokenizer


@pytest.fixture
def own(folder):
    """What mlx-lm has loaded, for our side."""
    return loaded(folder)


@pytest.fixture(scope="module")
def peer(folder):
    """The same for mlx-lm's side: no module of it was ever adapted."""
    return loaded(folder)


def tokens(module, model, tokenizer, prompt=PROMPT, **options):
    options = {"max_tokens": LENGTH, **options}
    return [r.token for r in module.stream_generate(model, tokenizer, prompt, **options)]


# ---- models of mlx-lm --------------------------------------------------------------------------


def test_replies_are_those_of_mlx_lm_and_token_ids_need_no_tokenizer(folder, peer):
    model, tokenizer = loaded(folder)
    expected = tokens(PEER, *peer)
    for _ in range(2):  # before and after a call with a tokenizer
        steps = compat.generate_step(mx.array(PROMPT), model, max_tokens=LENGTH)
        assert [token for token, _ in steps] == expected
        assert tokens(compat, model, tokenizer) == expected
    assert engines.engine_of(model).tokenizer.vocab_size == len(tokenizer)
    assert tokens(PEER, model, tokenizer) == expected  # mlx-lm goes on with it


def test_a_batch_replies_as_mlx_lm_s(own, peer):
    prompts = [PROMPT, PROMPT[:3], [4, 4, 4, 4, 9]]
    found, expected = (
        module.batch_generate(*model, prompts, max_tokens=[30, 5, 12], return_token_ids=True)
        for module, model in ((compat, own), (PEER, peer))
    )
    assert found.token_ids == expected.token_ids


def test_an_engine_is_made_once_for_a_model_and_freed_with_it(folder, monkeypatch):
    model, tokenizer = loaded(folder)
    engine = engines.engine_of(model, tokenizer)
    monkeypatch.setattr(engines.api, "wrap", None)
    assert engines.engine_of(model, tokenizer) is engines.engine_of(model) is engine
    tokens(compat, model, tokenizer, max_tokens=3)
    assert engine.target.history[: len(PROMPT)] == tuple(PROMPT)
    engine = weakref.ref(engine)
    del model
    gc.collect()
    assert engine() is None


def test_caches_that_are_set_on_a_model_later_are_not_ignored(folder):
    model, tokenizer = loaded(folder)
    plain = tokens(compat, model, tokenizer)
    model.make_cache = lambda: [RotatingKVCache(max_size=8) for _ in model.layers]
    assert tokens(PEER, model, tokenizer) != plain
    with pytest.raises(UnsupportedModelError, match="over caches of ours"):
        tokens(compat, model, tokenizer)
    model.make_cache = lambda: [KVCache() for _ in model.layers]
    assert tokens(compat, model, tokenizer) == tokens(PEER, model, tokenizer)
    del model.make_cache
    assert tokens(compat, model, tokenizer) == plain


def test_a_model_of_mlx_lm_drafts_and_an_engine_of_wrap_brings_its_drafter(tmp_path, own, peer):
    expected = tokens(PEER, *peer)
    small, _ = loaded(save_qwen3(tmp_path / "small", seed=4, head_dim=8))
    for draft_model in (small, own[0]):
        found = list(compat.stream_generate(*own, PROMPT, LENGTH, draft_model, num_draft_tokens=3))
        assert [response.token for response in found] == expected
    assert sum(response.from_draft for response in found) > LENGTH // 2  # it drafts for itself
    engine = mlxspec.wrap(*own, drafter="suffix")
    assert engines.engine_of(engine) is engine
    assert tokens(compat, engine, own[1]) == expected


def test_a_tokenizer_that_cannot_be_read_is_refused(own):
    slow = SimpleNamespace(detokenizer=None, eos_token_ids=set(), bos_token=None)
    with pytest.raises(UnsupportedModelError, match="fast tokenizer"):
        compat.generate(own[0], slow, PROMPT)


# ---- caches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "load"),
    [
        ({"max_kv_size": 24}, compat.load),
        ({"max_kv_size": 12}, PEER.load),
        (PACKED, compat.load),
        (PACKED, PEER.load),
    ],
    ids=["24 rows, ours", "12 rows, mlx-lm's", "4 bits, ours", "4 bits, mlx-lm's"],
)
def test_a_cache_that_a_call_names_is_used(folder, peer, options, load):
    model, tokenizer = loaded(folder, load)
    plain = tokens(PEER, *peer)
    expected = tokens(PEER, *peer, **options)
    assert expected != plain
    assert tokens(compat, model, tokenizer, **options) == expected
    assert tokens(compat, model, tokenizer) == plain


@pytest.mark.parametrize("options", [{"max_kv_size": 12}, PACKED], ids=str)
def test_a_batch_has_the_cache_that_a_call_names(own, options):
    prompts = [PROMPT, [3, 4, 4, 9]]
    found = compat.batch_generate(
        *own, prompts, max_tokens=24, return_token_ids=True, **options
    ).token_ids
    assert found == [tokens(compat, *own, one, max_tokens=24, **options) for one in prompts]
    assert found != [tokens(compat, *own, one, max_tokens=24) for one in prompts]


def test_rows_stay_plain_where_the_text_ends_before_quantised_kv_start(own, peer):
    assert tokens(compat, *own, kv_bits=4) == tokens(PEER, *peer, kv_bits=4)
    with pytest.raises(TypeError, match="quantized_kv_start=20 is not supported"):
        tokens(compat, *own, kv_bits=4, quantized_kv_start=20)
    assert len(tokens(compat, *own, kv_bits=4, quantized_kv_start=len(PROMPT) + LENGTH)) == LENGTH


def test_a_rotating_prompt_cache_is_continued_as_in_mlx_lm_copied_and_saved(own, peer, tmp_path):
    cache, theirs = (m.make_prompt_cache(one[0], 16) for m, one in ((compat, own), (PEER, peer)))
    for prompt in (PROMPT, [3, 4], [9, 9, 2]):
        found = tokens(compat, *own, prompt, max_tokens=10, prompt_cache=cache)
        assert found == tokens(PEER, *peer, prompt, max_tokens=10, prompt_cache=theirs)
    assert cache[0].engine.target.cache.max_size == 16
    assert len(cache[0].engine.target.history) > 30  # its rows stay for the next prompt
    compat.save_prompt_cache(tmp_path / "kept.safetensors", cache)
    for other in (copy.deepcopy(cache), compat.load_prompt_cache(tmp_path / "kept.safetensors")):
        assert (other[0].tokens, other[0].max_kv_size) == (cache[0].tokens, 16)
        assert other[0].tokens is not cache[0].tokens
    with pytest.raises(TypeError, match=r"^max_kv_size=24 .* for 16 rows"):
        tokens(compat, *own, prompt_cache=cache, max_kv_size=24)
    with pytest.raises(TypeError, match="a prompt cache with max_kv_size"):
        compat.batch_generate(*own, [PROMPT], [cache])


@pytest.mark.parametrize("size", [4, True])
def test_a_size_that_is_none_is_refused(own, size):
    with pytest.raises(ValueError, match=r"^max_kv_size must be .*5 or more"):
        tokens(compat, *own, max_kv_size=size)
    with pytest.raises(ValueError, match=r"^max_kv_size must be .*5 or more"):
        compat.make_prompt_cache(own[0], size)


# ---- a script ------------------------------------------------------------------------------------


def script(module, folder, say):
    """The calls of mlx-lm's README, with the names of one module."""
    template = "{% for m in messages %}{{ m.content }}c{% endfor %}"
    model, tokenizer = module.load(folder, tokenizer_config={"chat_template": template})
    messages = [{"role": "user", "content": "ab"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    tokenizer.eos_token_ids = ()
    say(module.generate(model, tokenizer, prompt=prompt, max_tokens=20, verbose=True))

    sampler = module.make_sampler(temp=0.0, top_p=0.9)
    processors = module.make_logits_processors(repetition_penalty=1.3, logit_bias={3: 1.0})
    options = {"sampler": sampler, "logits_processors": processors, "max_tokens": 32}
    text = ""
    for response in module.stream_generate(model, tokenizer, prompt, **options):
        text += response.text
    say((text, response.finish_reason))

    cache = module.make_prompt_cache(model)
    for text in ("ab c", "d", "ab"):
        say(module.generate(model, tokenizer, text, max_tokens=20, prompt_cache=cache))
    say(module.generate(model, tokenizer, prompt, max_tokens=40, max_kv_size=16))
    say(module.generate(model, tokenizer, prompt, max_tokens=40, kv_bits=8))
    packed = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}
    say(module.generate(model, tokenizer, prompt, max_tokens=40, **packed))


def test_a_script_for_mlx_lm_changes_its_imports_alone(folder, capsys):
    said, expected = [], []
    script(compat, str(folder), said.append)
    script(PEER, str(folder), expected.append)
    assert said == expected
    assert len(said) == 8
    assert "tokens-per-sec" in capsys.readouterr().out


def test_load_applies_adapters_as_mlx_lm_does(tmp_path):
    folder = save_qwen3(tmp_path / "model")
    adapter = save_adapter(tmp_path / "adapter")
    texts = []
    for module, load in ((compat, compat.load), (PEER, PEER.load)):
        texts.append(tokens(module, *loaded(folder, partial(load, adapter_path=str(adapter)))))
    assert texts[0] == texts[1] != tokens(PEER, *loaded(folder))


def test_max_kv_size_bounds_a_model_that_makes_its_own_caches_though_not_in_mlx_lm():
    model = adapted_source("gemma3_text")
    assert all(
        type(cache).__name__ != "RotatingKVCache" or cache.max_size == 4
        for cache in PEER.make_prompt_cache(model, max_kv_size=12)
    )
    cache = compat.make_prompt_cache(model, max_kv_size=12)
    steps = compat.generate_step(mx.array(PROMPT), model, max_tokens=20, prompt_cache=cache)
    assert len([token for token, _ in steps]) == 20
    held = cache[0].engine.target.cache
    assert (held.max_size, held.num_committed) == (12, 12)
