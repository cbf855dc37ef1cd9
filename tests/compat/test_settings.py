"""mlx-lm's sampler, logits processors, tokenizer and `load`, against mlx-lm's own."""

import inspect
from dataclasses import asdict
from importlib import import_module

import mlx.core as mx
import mlx_lm.sample_utils
import mlx_lm.tokenizer_utils
import numpy as np
import pytest
from tokenizers import decoders, processors

from mlxspec import compat
from mlxspec.compat.options import StepOptions
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import SamplingParams
from mlxspec.text.tokenizer import Tokenizer
from tests.loading.test_tokenizer import TEXTS, byte_level, sentencepiece
from tests.support.model_folders import save_folder, save_gguf
from tests.support.peers import make_pair

GENERATE = import_module("mlx_lm.generate")
MESSAGES = [{"role": "user", "content": "the cat"}, {"role": "user", "content": "and the mat"}]


# ---- the same arguments at the same places ---------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (compat.make_sampler, mlx_lm.sample_utils.make_sampler),
        (compat.make_logits_processors, mlx_lm.sample_utils.make_logits_processors),
        (compat.stream_generate, GENERATE.stream_generate),
        (compat.generate, GENERATE.generate),
        (compat.generate_step, GENERATE.generate_step),
        (compat.batch_generate, GENERATE.batch_generate),
        (compat.load, import_module("mlx_lm.utils").load),
        *(
            (getattr(compat, name), getattr(import_module("mlx_lm.models.cache"), name))
            for name in ("make_prompt_cache", "save_prompt_cache", "load_prompt_cache")
        ),
    ],
    ids=lambda function: f"{function.__module__}.{function.__name__}",
)
def test_arguments_stand_where_mlx_lm_has_them(ours, theirs):
    mine, other = (inspect.signature(function).parameters for function in (ours, theirs))
    positional = [name for name, p in other.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [*mine][: len(positional)] == positional
    for name in positional:
        if name != "stream":
            assert mine[name].default == other[name].default
    takes_more = any(p.kind is p.VAR_KEYWORD for p in mine.values())
    by_name = {name for name, p in other.items() if p.kind is p.KEYWORD_ONLY}
    assert not by_name or takes_more
    assert by_name <= {*mine, *(field for field in asdict(StepOptions()))}


def test_options_of_speculative_decoding_and_their_defaults_are_mlx_lm_s():
    speculative = inspect.signature(GENERATE.speculative_generate_step).parameters
    known = {*asdict(StepOptions()), "prompt", "model", "draft_model", "stream", "max_tokens"}
    assert set(speculative) <= known
    plain = inspect.signature(GENERATE.generate_step).parameters
    for name, value in asdict(StepOptions()).items():
        if name in plain:
            assert value == plain[name].default


# ---- sampler ---------------------------------------------------------------------------------


def test_a_sampler_is_the_law_of_its_arguments_in_mlx_lm_s_order():
    sampling = compat.make_sampler(0.7, 0.9, 0.05, 2, 40, 0.3, 0.2, [5, 6])
    assert isinstance(sampling, SamplingParams)
    law = SamplingParams(
        temperature=0.7,
        top_p=0.9,
        min_p=0.05,
        min_tokens_to_keep=2,
        top_k=40,
        xtc_probability=0.3,
        xtc_threshold=0.2,
        xtc_special_tokens=(5, 6),
        filter_order="mlx-lm",
    )
    assert sampling.describe() == law.describe()


def bias(token):
    (processor,) = compat.make_logits_processors({token: 1.0})
    return processor(mx.array([1]), mx.zeros((1, 20)))


def window(size):
    return compat.make_logits_processors(presence_penalty=1.0, presence_context_size=size)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compat.make_sampler(temp=-1), "must be"),
        (lambda: compat.make_sampler(temp=0.7, min_p=1.5), "must be"),
        (lambda: compat.make_sampler(temp=0.7, min_p=0.1, min_tokens_to_keep=0), "must be"),
        (lambda: compat.make_sampler(temp=0.7, xtc_threshold=0.9), "must be"),
        (lambda: bias(-1), "names token -1; allowed are 0 to 19"),
        (lambda: bias(20), "names token 20; allowed are 0 to 19"),
        (lambda: window(None), "presence_context_size must be"),
        (lambda: window(-3), "presence_context_size must be"),
    ],
)
def test_a_setting_out_of_range_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_sampler_can_be_called_as_mlx_lm_s():
    probs = np.array([0.5, 0.3, 0.15, 0.05])
    logprobs = mx.broadcast_to(mx.log(mx.array(probs, mx.float32)), (20_000, 4))
    mx.random.seed(3)
    drawn = np.array(compat.make_sampler(temp=1.0, top_k=3)(logprobs))
    expected = np.where(probs < 0.1, 0, probs) / 0.95
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / len(drawn)))
    assert compat.make_sampler()(logprobs[:2]).tolist() == [0, 0]


# ---- processors ------------------------------------------------------------------------------


def test_processors_do_what_those_of_mlx_lm_do():
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1}
    arguments = {"logit_bias": {1: 9.0, 0: -5.0}, **penalties, "repetition_context_size": 4}
    tokens = mx.random.randint(0, 12, (60,), key=mx.random.key(1))  # many of them twice
    results = []
    for module in (compat, mlx_lm.sample_utils):
        logits = 3 * mx.random.normal((1, 20), key=mx.random.key(1))
        for processor in module.make_logits_processors(**arguments):
            logits = processor(tokens, logits)
        results.append(np.array(logits))
    np.testing.assert_allclose(*results, atol=1e-6)
    assert compat.make_logits_processors() == []
    assert compat.make_logits_processors({}, 0, 20, 0.0) == []


# ---- tokenizer -------------------------------------------------------------------------------


def stripping():
    wrapped = sentencepiece()
    wrapped.backend_tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return wrapped


KINDS = {
    "bytes": (byte_level, mlx_lm.tokenizer_utils.BPEStreamingDetokenizer),
    "sentencepiece": (stripping, mlx_lm.tokenizer_utils.SPMStreamingDetokenizer),
    "sentencepiece without a first space": (
        sentencepiece,
        lambda wrapped: mlx_lm.tokenizer_utils.SPMStreamingDetokenizer(wrapped, trim_space=False),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_detokenizer_spells_what_mlx_lm_s_does(kind):
    make, theirs = KINDS[kind]
    wrapped = make()
    ours = compat.TokenizerWrapper(Tokenizer(wrapped)).detokenizer
    other = theirs(wrapped)
    for text in [*TEXTS, " Paris is", "<|end|>then"]:
        tokens = wrapped.encode(text)
        segments = []
        for stream in (ours, other):
            stream.reset()
            for token in tokens:
                stream.add_token(token)
                segments.append(stream.last_segment)
            stream.finalize()
            segments.append(stream.last_segment)
        half = len(segments) // 2
        assert "".join(segments[:half]) == "".join(segments[half:]) == ours.text == other.text
        assert ours.tokens == tokens


@pytest.mark.parametrize("options", [{}, {"chat_template": "{{ 1 }}"}], ids=str)
def test_a_conversation_becomes_what_mlx_lm_makes_of_it(options):
    pair = make_pair()
    found = pair.tokenizer.apply_chat_template(MESSAGES, **options)
    assert found == pair.their_tokenizer.apply_chat_template(MESSAGES, **options)


def test_any_tokenizer_of_the_model_will_do():
    pair = make_pair()
    expected = GENERATE.generate(pair.their_model, pair.their_tokenizer, "the cat", max_tokens=8)
    library = pair.engine.tokenizer
    for tokenizer in (pair.tokenizer, library, library.wrapped, pair.their_tokenizer):
        assert compat.generate(pair.engine, tokenizer, "the cat", max_tokens=8) == expected
    with pytest.raises(TypeError, match="the tokenizer is a str"):
        compat.generate(pair.engine, "tokenizer", "the cat")


def test_a_prompt_that_begins_with_the_start_token_gets_no_other():
    pair = make_pair()
    for tokenizer in (pair.tokenizer, pair.their_tokenizer):
        start = tokenizer.convert_tokens_to_ids("<|user|>")
        tokenizer.bos_token = "<|user|>"
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<|user|> $A", special_tokens=[("<|user|>", start)]
        )
    counts = set()
    for prompt in ("<|user|>the cat", "the cat"):
        options = {"prompt": prompt, "max_tokens": 3}
        (ours, *_) = compat.stream_generate(pair.engine, pair.tokenizer, **options)
        (theirs, *_) = GENERATE.stream_generate(pair.their_model, pair.their_tokenizer, **options)
        assert ours.prompt_tokens == theirs.prompt_tokens
        counts.add(ours.prompt_tokens)
    assert counts == {1 + len(pair.tokenizer.encode("the cat", add_special_tokens=False))}


# ---- load ------------------------------------------------------------------------------------


def test_load_returns_an_engine_a_tokenizer_and_perhaps_the_settings(tmp_path):
    folder = save_folder(tmp_path / "model")
    engine, tokenizer, config = compat.load(folder, return_config=True, drafter="none")
    assert isinstance(engine, Engine)
    assert tokenizer.eos_token_ids == {*engine.tokenizer.eos_token_ids}
    changed = {"model_config": {"rope_theta": 3.0}, "return_config": True}
    assert config == import_module("mlx_lm.utils").load(str(folder), return_config=True)[2]
    assert compat.load(folder, drafter="none", **changed)[2] == config | {"rope_theta": 3.0}
    file = save_gguf(tmp_path / "model.gguf")
    read = compat.load(file, return_config=True, drafter="none")[2]
    assert read["vocab_size"] == engine.target.vocab_size
    assert len(compat.load(str(folder), {}, {}, trust_remote_code=False, drafter="none")) == 2


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lazy", True, "lazy is not supported here: "),
        ("trust_remote_code", True, "trust_remote_code is not supported here: "),
        *(
            ("tokenizer_config", {key: value}, f"tokenizer_config\\['{key}'\\] is not supported")
            for key, value in (
                ("trust_remote_code", True),
                ("chat_template_type", "deepseek_v32"),
                ("tool_parser_type", "mistral"),
                ("use_fast", False),
            )
        ),
        ("tokenizer_config", "eos_token", "tokenizer_config is a str; give a dict"),
        ("model_config", "eos_token", "model_config is a str; give a dict"),
    ],
)
def test_load_refuses_by_name_what_it_cannot_do(name, value, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        compat.load("there/is-none", **{name: value})


@pytest.mark.parametrize("port", ["own", "mlx-lm"])
def test_changes_of_the_configs_reach_model_and_tokenizer_as_in_mlx_lm(tmp_path, port, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    folder = save_folder(tmp_path / "model")
    changes = {
        "tokenizer_config": {"eos_token": "b", "chat_template": "{{ 1 }}"},
        "model_config": {"rope_theta": 3.0, "eos_token_id": [2, 4]},
    }
    theirs, their_tokenizer = import_module("mlx_lm.utils").load(str(folder), **changes)
    model, tokenizer = compat.load(folder, port=port, drafter="none", **changes)
    assert tokenizer.eos_token_ids == their_tokenizer.eos_token_ids >= {2, 4}
    assert tokenizer.chat_template == their_tokenizer.chat_template
    prompt = [5, 9, 2, 7, 11, 8]
    unchanged, _ = compat.load(folder, port=port, drafter="none")
    found, plain = (
        next(compat.generate_step(prompt, one, max_tokens=1))[1] for one in (model, unchanged)
    )
    (_, expected) = next(GENERATE.generate_step(mx.array(prompt), theirs, max_tokens=1))
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert abs(np.array(found) - np.array(plain)).max() > 1e-3


def test_the_tokenizer_of_a_gguf_file_cannot_be_changed_nor_a_revision_of_a_folder(tmp_path):
    file, folder = save_gguf(tmp_path / "model.gguf"), save_folder(tmp_path / "model")
    for source, option in (
        (file, {"tokenizer_config": {"eos_token": "b"}}),
        (folder, {"revision": "main"}),
        ("default", {"revision": "main"}),
    ):
        with pytest.raises(
            UnsupportedOperationError, match=f"{next(iter(option))} is not supported for"
        ):
            compat.load(source, **option)
    engine, _ = compat.load(file, model_config={"max_position_embeddings": 33}, drafter="none")
    assert engine.context_length == 33


@pytest.mark.parametrize("name", ["BatchGenerator", "KVCache", "convert"])
def test_importing_an_unsupported_name_says_what_to_do(name):
    with pytest.raises(ImportError, match=f"{name} is not offered by mlxspec.compat: "):
        getattr(compat, name)
    assert not hasattr(compat, "nothing_of_the_kind")
