"""Layers with a sliding window drop rows; texts far behind the window stay those of mlx-lm."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import GROWTH
from mlxspec.kv.windows import USUAL_EVICTION, Eviction
from mlxspec.params import GenerationParams
from mlxspec.trace.events import PrefillProgress
from tests.adapted.test_zoo import WITH_WINDOWS
from tests.support.adversaries import AlwaysRight, RandomTrees
from tests.support.batches import for_each_sequence
from tests.support.tiny import ToyTokenizer, emitted
from tests.support.zoo import PARENTS, PATH, TOLERANCE, Specimen, build, error, text_of, tree_of

AT_ONCE = Eviction(slack=4, block=1)
LENGTH = 150  # of a reply: more than a block
SAMPLED = (  # types whose windows differ in size, in what lies beside them, or in mlx-lm's code
    *("gemma3_text", "gpt_oss", "gemma3n", "plamo3", "recurrent_gemma", "ministral3", "gear"),
    *("iquestloopcoder", "mimo_v2_flash", "laguna"),
)


def decoder_of(model, **settings):
    return Decoder(model, Cache.for_model(model.config, **settings))


def greedy(source, prompt, length):
    with mx.stream(mx.default_device()):
        return [int(t) for t, _ in generate_step(mx.array(prompt), source, max_tokens=length)]


def reply(engine, prompt, length):
    return list(engine.generate(prompt, GenerationParams(max_tokens=length, num_draft_tokens=6)))


def suffixes(vocab_size):
    return PoolDrafter([SuffixDrafter()])


def held(cache, layer):
    return cache.offset - cache.num_evicted(layer)


def slots_by_window(cache):
    """(window, slots) of the keys and of the values of each layer."""
    arrays = cache.row_arrays
    return [(cache.windows[i % cache.num_layers], a.shape[2]) for i, a in enumerate(arrays)]


# ---- rows that are held --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt_oss"])
def test_after_a_long_text_a_layer_holds_little_more_than_its_window(name):
    model = AdaptedModel(build(name))
    decoder = decoder_of(model)
    decoder.observe(text_of(600))
    assert {8, None} == set(decoder.cache.windows)
    for _ in range(40):
        decoder.forward_tree(tree_of(PARENTS))
        decoder.commit(PATH)
        for layer, window in enumerate(decoder.cache.windows):
            most = len(decoder) if window is None else USUAL_EVICTION.most_held(window)
            assert held(decoder.cache, layer) <= most
    mx.eval(decoder.cache.arrays)
    for window, slots in slots_by_window(decoder.cache):
        assert slots > 600 if window is None else slots <= USUAL_EVICTION.most_held(8) + GROWTH


# ---- texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make"),
    [*((name, RandomTrees) for name in SAMPLED), ("gemma3_text", suffixes), ("gpt_oss", suffixes)],
)
def test_300_tokens_past_a_window_any_drafter_gives_the_text_of_mlx_lm(name, make):
    source, prompt = build(name), text_of(311)
    expected = greedy(source, prompt, LENGTH)
    target = decoder_of(AdaptedModel(source))
    engine = Engine(target, make(target.vocab_size), ToyTokenizer(target.vocab_size))
    assert emitted(reply(engine, prompt, LENGTH)) == expected
    layers = range(target.cache.num_layers)
    assert max(target.cache.num_evicted(layer) for layer in layers) > 200


def test_replies_across_chunks_of_attention_and_300_tokens_past_one_are_those_of_mlx_lm():
    source = build("llama4")  # a token sees its chunk of 8 in three layers of four
    prompts = {20: text_of(311), 60: text_of(5)}
    expected = {length: greedy(source, prompt, length) for length, prompt in prompts.items()}
    model = AdaptedModel(source)
    model.draft_support = "chain"
    for length, prompt in prompts.items():
        text = [*prompt, *expected[length]]
        mostly = [(token + (at % 5 == 0)) % 96 for at, token in enumerate(text)]
        engine = Engine(Decoder(model), AlwaysRight(mostly), ToyTokenizer(96))
        events = reply(engine, prompt, length)
        assert emitted(events) == expected[length]
        assert sum(len(getattr(event, "path", ())) for event in events) > length / 2  # accepted


@pytest.mark.parametrize("name", WITH_WINDOWS)
def test_a_tree_300_tokens_past_a_window_is_exact_however_many_rows_a_layer_evicts(name):
    specimen = Specimen(name, text_of(311))
    assert specimen.error_of_tree() < TOLERANCE
    config = specimen.model.config
    assert specimen.error_of_tree(Cache.for_model(config, eviction=AT_ONCE)) < TOLERANCE


def test_quantised_rows_give_the_same_logits_evicted_or_not():
    model = AdaptedModel(build("gpt_oss"))
    found = []
    for eviction in (AT_ONCE, Eviction(slack=10_000)):
        decoder = decoder_of(model, eviction=eviction, quantization=Quantization(8, 64))
        decoder.observe(text_of(90))
        found.append(decoder.tree_logits(tree_of(PARENTS)))
    assert error(found[0], found[1]) < TOLERANCE


# ---- going back ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss"])
def test_a_text_goes_back_to_every_depth_after_rows_were_evicted(name):
    source, text = build(name), text_of(150)
    with mx.stream(mx.default_device()):
        truth = source(mx.array([text]), cache=make_prompt_cache(source))[0]
        mx.eval(truth)
    decoder = decoder_of(AdaptedModel(source), eviction=AT_ONCE)
    decoder.observe(text)
    for length in range(len(text) - 1, len(text) - 20, -1):
        cache, is_kept = decoder.cache, decoder.cache.can_truncate(length)
        assert is_kept == ((len(text) - length) % (AT_ONCE.slack + 1) != 0)
        decoder.rollback_to(length)
        assert is_kept == (decoder.cache is cache)  # else the text was read again
        assert error(decoder.next_logits(), truth[length - 1]) < TOLERANCE


def reused(events):
    return [event.reused for event in events if isinstance(event, PrefillProgress)][-1]


@pytest.mark.parametrize(
    ("name", "shared", "is_read_again"), [("gemma3_text", 250, True), ("gpt_oss", 390, False)]
)
def test_a_chat_that_goes_back_beyond_the_window_reads_its_text_again(name, shared, is_read_again):
    source, first = build(name), text_of(400)
    answer = greedy(source, first, 21)
    second = [*first[:shared], (first[shared] + 1) % 30, *text_of(40)]
    expected = greedy(source, second, 20)
    target = decoder_of(AdaptedModel(source))
    engine = Engine(target, RandomTrees(target.vocab_size), ToyTokenizer(target.vocab_size))
    assert emitted(reply(engine, first, 21)) == answer
    events = reply(engine, second, 20)
    assert emitted(events) == expected
    assert reused(events) == (0 if is_read_again else shared)


# ---- batches -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lengths", "length", "eviction"),
    [
        ("gpt_oss", (260, 3, 90), LENGTH, USUAL_EVICTION),
        ("recurrent_gemma", (40, 3, 20, 17), 12, AT_ONCE),
        *((name, (311, 3, 320, 17), 12, AT_ONCE) for name in SAMPLED),
    ],
)
def test_replies_of_a_batch_that_evicts_are_those_of_mlx_lm(name, lengths, length, eviction):
    source = build(name)
    prompts = [text_of(length) for length in lengths]
    expected = [greedy(source, prompt, length) for prompt in prompts]
    target = decoder_of(AdaptedModel(source), eviction=eviction)
    vocab = target.vocab_size
    engine = Engine(target, for_each_sequence(RandomTrees, vocab), ToyTokenizer(vocab))
    params = GenerationParams(max_tokens=length, num_draft_tokens=6)
    replies = list(engine.generate_batch(prompts, params, batch_size=2, rows_per_round=64))
    assert [list(one.tokens) for one in replies] == expected
