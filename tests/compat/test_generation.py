"""Generation as a script for mlx-lm uses it, against mlx-lm with the same weights."""

from importlib import import_module

import mlx.core as mx
import mlx_lm.models.cache
import mlx_lm.sample_utils
import numpy as np
import pytest

from mlxspec import compat
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.errors import ContextLengthError, VocabularyMismatchError
from mlxspec.params import SamplingParams
from mlxspec.testing import OracleDrafter
from mlxspec.text.tokenizer import Tokenizer
from tests.loading.test_tokenizer import byte_level
from tests.support.adversaries import RandomTrees, UniformChain
from tests.support.pairwise import each_value
from tests.support.peers import make_pair

PEER = import_module("mlx_lm.generate")  # the package's own attribute is a function
PROMPT = "the cat sat on the mat, and the cat"
FIELDS = ("token", "prompt_tokens", "generation_tokens", "finish_reason")


@pytest.fixture
def pair():
    return make_pair()


def ours(pair, prompt=PROMPT, *args, **options):
    return list(compat.stream_generate(pair.engine, pair.tokenizer, prompt, *args, **options))


def theirs(pair, prompt=PROMPT, *args, **options):
    stream = PEER.stream_generate
    return list(stream(pair.their_model, pair.their_tokenizer, prompt, *args, **options))


def facts(responses):
    return [tuple(getattr(response, name) for name in FIELDS) for response in responses]


def text(responses):
    return "".join(response.text for response in responses)


def tokens(responses):
    return [response.token for response in responses]


def assert_as_theirs(found, expected):
    assert facts(found) == facts(expected)
    assert text(found) == text(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-4)


# ---- the same reply --------------------------------------------------------------------------


DRAFTERS = {
    **{name: lambda size, make=make: make() for name, make in HOST_DRAFTERS.items()},
    "random trees": RandomTrees,
    "uniform chain": UniformChain,
}


@each_value(prompt=[PROMPT, "a", [5, 9, 200, 31], np.array([5, 9, 200, 31])], drafter=DRAFTERS)
def test_responses_are_those_of_mlx_lm(drafter, prompt):
    pair = make_pair(make_drafter=DRAFTERS[drafter])
    own = mx.array(prompt) if isinstance(prompt, np.ndarray) else prompt
    assert_as_theirs(ours(pair, prompt, 12), theirs(pair, own, 12))


def test_a_stop_token_is_the_last_response_and_those_that_a_script_adds_or_removes_count(pair):
    said = tokens(ours(pair, max_tokens=12))
    stopping = make_pair(stops=[said[7]])
    found = ours(stopping, max_tokens=12)
    assert_as_theirs(found, theirs(stopping, max_tokens=12))
    assert (found[-1].token, found[-1].finish_reason) == (said[7], "stop")
    pair.tokenizer.add_eos_token(str(said[6]))
    pair.their_tokenizer.add_eos_token(str(said[6]))
    assert facts(ours(pair, max_tokens=12)) == facts(theirs(pair, max_tokens=12))
    pair.tokenizer.eos_token_ids = [said[3]]  # the tokenizer's own is none any more
    pair.their_tokenizer.eos_token_ids = [said[3]]
    assert facts(ours(pair, max_tokens=12)) == facts(theirs(pair, max_tokens=12))
    stopping.tokenizer.eos_token_ids = ()
    assert tokens(ours(stopping, max_tokens=12)) == said


def test_generate_takes_the_arguments_of_mlx_lm(pair, capsys):
    expected = PEER.generate(pair.their_model, pair.their_tokenizer, PROMPT, True, max_tokens=9)
    told = capsys.readouterr().out
    found = compat.generate(pair.engine, pair.tokenizer, PROMPT, True, max_tokens=9)
    mine = capsys.readouterr().out
    assert found == expected
    words = [[word for word in out.split() if not word[0].isdigit()] for out in (told, mine)]
    assert words[0] == words[1]
    assert compat.generate(pair.engine, pair.tokenizer, PROMPT, max_tokens=9) == expected
    assert capsys.readouterr().out == ""


def test_generate_step_goes_on_after_stop_tokens(pair):
    stop = tokens(ours(pair, max_tokens=6))[2]
    stopping = make_pair(stops=[stop])
    prompt = mx.array(stopping.tokenizer.encode(PROMPT))
    found = list(compat.generate_step(prompt, stopping.engine, max_tokens=6))
    expected = list(PEER.generate_step(prompt, stopping.their_model, max_tokens=6))
    assert [token for token, _ in found] == [token for token, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_tokens_of_a_drafter_say_so(pair):
    reply = tokens(ours(pair, [5, 9, 200, 31], 8))
    drafting = make_pair(OracleDrafter([5, 9, 200, 31, *reply[:3]]))
    found = ours(drafting, [5, 9, 200, 31], 8)
    assert [response.from_draft for response in found] == [True] * 3 + [False] * 5


# ---- samplers and processors -----------------------------------------------------------------


def test_functions_of_the_text_give_the_reply_of_mlx_lm(pair):
    def by_the_text(tokens, logits):
        token = (int(tokens.sum().item()) * 7 + len(tokens)) % logits.shape[-1]
        return logits.at[:, token].add(5.0)

    settings = {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.4}
    windows = {"repetition_context_size": 7, "frequency_context_size": 3}
    arguments = {"logit_bias": {4: 3.0, 9: -2.0}, **settings, **windows}
    found, expected = (
        generate(
            pair,
            max_tokens=24,
            logits_processors=[*module.make_logits_processors(**arguments), by_the_text],
        )
        for generate, module in ((ours, compat), (theirs, mlx_lm.sample_utils))
    )
    assert tokens(found) == tokens(expected) != tokens(ours(pair, max_tokens=24))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-4)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda logprobs: mx.argsort(-logprobs, axis=-1)[:, 2],
        mlx_lm.sample_utils.make_sampler(temp=0.7, top_k=1),
    ],
)
def test_a_sampler_of_one_s_own_gives_the_reply_of_mlx_lm(pair, sampler):
    options = {"sampler": sampler, "max_tokens": 24}
    assert tokens(ours(pair, **options)) == tokens(theirs(pair, **options))


def test_without_a_limit_a_reply_ends_where_the_context_does():
    pair = make_pair(max_position_embeddings=40)
    pair.tokenizer.eos_token_ids = ()
    found = ours(pair, max_tokens=-1)
    assert found[0].prompt_tokens + len(found) == 41
    assert [response.finish_reason for response in found] == [None] * (len(found) - 1) + ["length"]


def test_a_law_is_a_sampler_with_all_its_fields(pair):
    sampling = SamplingParams(
        temperature=0.8, presence_penalty=3.0, frequency_penalty=2.0, logit_bias={7: 9.0}
    )
    found = tokens(ours(pair, max_tokens=20, sampler=sampling, seed=3))
    plain = SamplingParams(temperature=0.8)
    assert found != tokens(ours(pair, max_tokens=20, sampler=plain, seed=3))
    params = compat.options.StepOptions(sampler=sampling, seed=3).params(20, 0, ignores_eos=True)
    assert params.sampling == sampling


def test_mlx_s_random_state_determines_the_samples(pair):
    sampler = compat.make_sampler(temp=1.5)
    mx.random.seed(7)
    first, second = (tokens(ours(pair, max_tokens=12, sampler=sampler)) for _ in range(2))
    assert first != second
    mx.random.seed(7)
    assert tokens(ours(pair, max_tokens=12, sampler=sampler)) == first
    seeded = [tokens(ours(pair, max_tokens=12, sampler=sampler, seed=1)) for _ in range(2)]
    assert seeded[0] == seeded[1]


# ---- prompts and their cache -----------------------------------------------------------------


@pytest.mark.parametrize("step", [2, 2048])
def test_the_callback_gets_the_progress_of_the_prefill(pair, step):
    told = []
    options = {"prefill_step_size": step, "max_tokens": 1}
    ours(pair, prompt_progress_callback=lambda *counts: told.append(counts), **options)
    total = len(pair.tokenizer.encode(PROMPT))
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert len(told) >= total / step
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_prompt_cache_is_continued_as_in_mlx_lm(pair):
    cache = compat.make_prompt_cache(pair.engine)
    their_cache = mlx_lm.models.cache.make_prompt_cache(pair.their_model)
    for prompt in (PROMPT, " and then", [7, 8, 9]):
        found = ours(pair, prompt, 7, prompt_cache=cache)
        assert facts(found) == facts(theirs(pair, prompt, 7, prompt_cache=their_cache))
        assert cache[0].offset == their_cache[0].offset
    assert compat.can_trim_prompt_cache(cache)
    trimmed = [
        module.trim_prompt_cache(kept, 5)
        for module, kept in ((compat, cache), (mlx_lm.models.cache, their_cache))
    ]
    assert trimmed == [5, 5]
    found = ours(pair, [7, 8], 7, prompt_cache=cache)
    assert facts(found) == facts(theirs(pair, [7, 8], 7, prompt_cache=their_cache))


def test_a_cache_holds_each_token_once_it_is_yielded(pair):
    cache = compat.make_prompt_cache(pair.engine)
    reply = compat.generate_step([5, 9, 20, 31], pair.engine, prompt_cache=cache, max_tokens=20)
    assert cache[0].tokens == []
    for count in range(1, 5):
        next(reply)
        assert cache[0].offset == 4 + count
    compat.trim_prompt_cache(cache, 3)
    reply.close()
    assert cache[0].offset == 5  # who closes it writes nothing
    said = cache[0].tokens[4:]
    found = tokens(ours(pair, [5], 6, prompt_cache=cache))
    assert found == tokens(ours(pair, [5, 9, 20, 31, *said, 5], 6))


def test_two_prompt_caches_do_not_know_of_each_other(pair):
    one, other = compat.make_prompt_cache(pair.engine), compat.make_prompt_cache(pair.engine)
    alone = [tokens(ours(pair, prompt, 6)) for prompt in ([1, 2, 3, 4], [1, 2, 9, 4])]
    ours(pair, [1, 2], 1, prompt_cache=one)
    one[0].trim(1)
    other[0].tokens = [1, 2]
    assert tokens(ours(pair, [9, 4], 6, prompt_cache=other)) == alone[1]
    assert tokens(ours(pair, [3, 4], 6, prompt_cache=one)) == alone[0]


def test_a_processor_sees_the_text_after_the_cache_and_all_emitted_tokens(pair):
    seen = []

    def watch(tokens, logits):
        seen.append(tokens.tolist())
        return logits

    said = tokens(ours(pair, max_tokens=5, logits_processors=[watch]))
    for length in range(5):
        assert pair.tokenizer.encode(PROMPT) + said[:length] in seen
    cache = compat.make_prompt_cache(pair.engine)
    ours(pair, [1, 2, 3], 4, prompt_cache=cache)
    seen.clear()
    ours(pair, [5, 6], 1, prompt_cache=cache, logits_processors=[watch])
    assert seen == [[5, 6]]


def test_a_prompt_cache_can_be_saved_to_a_file(pair, tmp_path):
    cache = compat.make_prompt_cache(pair.engine)
    ours(pair, PROMPT, 5, prompt_cache=cache)
    file = tmp_path / "kept.safetensors"
    compat.save_prompt_cache(file, cache, {"about": "cats"})
    kept, about = compat.load_prompt_cache(file, return_metadata=True)
    assert (kept[0].tokens, about) == (cache[0].tokens, {"about": "cats"})
    assert compat.load_prompt_cache(file)[0].offset == cache[0].offset
    mx.save_safetensors(str(tmp_path / "theirs"), {"a": mx.zeros(1)}, {"0": "KVCache"})
    with pytest.raises(compat.prompt_cache.CacheError, match="is not a prompt cache of mlxspec"):
        compat.load_prompt_cache(tmp_path / "theirs.safetensors")


# ---- a draft model ---------------------------------------------------------------------------


def test_a_draft_model_leaves_the_reply_and_both_engines_alone(pair):
    small = make_pair(seed=9)
    before = tokens(ours(small, [1, 2, 3], 4))
    history, own = small.engine.target.history, (pair.engine.drafter, pair.engine.budget)
    found = ours(pair, max_tokens=20, draft_model=small.engine, num_draft_tokens=3)
    assert tokens(found) == tokens(theirs(pair, max_tokens=20))
    assert (pair.engine.drafter, pair.engine.budget) == own
    assert small.engine.target.history == history
    assert tokens(ours(small, [1, 2, 3], 4)) == before


def test_a_draft_model_that_reads_another_tokenizer_is_refused(pair):
    small = make_pair(tokenizer=Tokenizer(byte_level(texts=["other words here"])))
    with pytest.raises(VocabularyMismatchError, match="has another tokenizer"):
        ours(pair, draft_model=small.engine)


# ---- what is refused, by name ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_bits", 6),
        ("input_embeddings", mx.zeros((3, 64))),
        ("stream", mx.default_stream(mx.default_device())),
    ],
)
def test_an_unsupported_argument_is_refused_by_name(pair, name, value):
    with pytest.raises(TypeError, match=f"^{name}.* is not supported here"):
        ours(pair, **{name: value})
    with pytest.raises(TypeError, match=f"^{name}.* is not supported here"):
        compat.generate_step([1, 2], pair.engine, **{name: value})


def test_the_engine_s_own_cache_may_be_named():
    rotating = make_pair(kind="rotating")
    assert ours(rotating, max_tokens=3, max_kv_size=12)
    assert rotating.engine.target.history
    packed = make_pair(kind="int8")
    settings = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}
    assert ours(packed, max_tokens=3, **settings)
    assert packed.engine.target.history
    for name, value in (("kv_bits", 3), ("kv_group_size", 24), ("quantized_kv_start", 5000)):
        with pytest.raises(TypeError, match=f"^{name}={value} is not supported here"):
            ours(packed, **{**settings, name: value})


def test_what_is_no_model_is_refused(pair):
    with pytest.raises(TypeError, match=r"^model must be an engine or a model"):
        compat.generate("model", pair.tokenizer, PROMPT)
    with pytest.raises(TypeError, match=r"^draft_model must .* builtins\.str"):
        compat.stream_generate(pair.engine, pair.tokenizer, PROMPT, 5, "small")
    with pytest.raises(TypeError, match=r"^model must be an engine or a model"):
        compat.make_prompt_cache("model")


FUNCTIONS = "give a list of functions"
NO_PROMPT = "a prompt is a text, or token ids"


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"temperature": 0.7}, TypeError, "stream_generate has no argument 'temperature'; it"),
        ({"sampler": 0.7}, TypeError, "the sampler is a float"),
        ({"logits_processors": SamplingParams()}, TypeError, "pass it as the sampler"),
        ({"logits_processors": lambda tokens, logits: logits}, TypeError, FUNCTIONS),
        ({"logits_processors": [SamplingParams()]}, TypeError, FUNCTIONS),
        ({"prompt": [1.5]}, TypeError, NO_PROMPT),
        ({"prompt": [True]}, TypeError, NO_PROMPT),
        ({"prompt": mx.zeros((1, 3), mx.int32)}, TypeError, NO_PROMPT),
        ({"prompt": []}, ValueError, "empty"),
        ({"prompt": [3] * 513}, ContextLengthError, "513 tokens"),
        *(
            ({"max_tokens": length}, ValueError, "max_tokens must be a whole number")
            for length in (0, -2, 2.5, True, "9")
        ),
    ],
)
def test_a_value_that_is_none_is_refused(pair, options, error, told):
    with pytest.raises(error, match=told):
        ours(pair, **{"prompt": PROMPT, **options})
