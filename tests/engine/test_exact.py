"""Exact replies: every token and every logit to the bit, whatever drafts, is cached or runs beside.

The truth is the reply that plain decoding writes in forwards of the same form.
"""

from dataclasses import replace
from functools import partial
from itertools import count

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import mlxspec
from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.exact import ExactForm
from mlxspec.device.chips import Chip
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.kv.steady import CHUNK
from mlxspec.loading import exactness
from mlxspec.params import GenerationParams, SamplingParams
from tests.engine.test_interrupts import DRAFTERS
from tests.support.model_folders import save_folder
from tests.support.pairwise import each_value
from tests.support.tiny import ToyTokenizer, emitted, make_cache, tiny_model
from tests.support.tiny_adapted import SETTINGS, adapted
from tests.support.told_bits import ToldBits, bits_of

PARAMS = {
    "greedy": GenerationParams(max_tokens=40, exact=True, ignore_eos=True),
    "sampled": GenerationParams(
        max_tokens=40,
        exact=True,
        ignore_eos=True,
        seed=5,
        sampling=SamplingParams(temperature=1.0, top_p=0.95, repetition_penalty=1.1),
    ),
}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3] * 3
LONG = [(7 * i * i + 3 * i + 5) % 24 for i in range(CHUNK + 90)]  # of more than one chunk


@pytest.fixture(autouse=True)
def _own_records(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))


def engine_of(model, kind="full", make_drafter=lambda target: NoDrafter()):
    decoder = Decoder(model, make_cache(model, kind))
    return Engine(decoder, make_drafter(decoder), ToyTokenizer(model.config.vocab_size))


MODELS = {dtype: tiny_model() for dtype in ("float32", "float16", "bfloat16")}
for name, model in MODELS.items():
    model.set_dtype(getattr(mx, name))


@each_value(
    drafter=list(DRAFTERS),
    kind=("full", "rotating", "int8"),
    params=list(PARAMS),
    dtype=list(MODELS),
)
def test_a_drafted_reply_has_the_bits_of_a_plain_one(drafter, kind, params, dtype):
    model, make = MODELS[dtype], partial(DRAFTERS[drafter], kind=kind)
    drafted = engine_of(model, kind, make)
    found = bits_of(drafted, PROMPT, PARAMS[params])
    assert found == bits_of(engine_of(model, kind), PROMPT, PARAMS[params])
    assert len(found) == 40


def test_an_early_exit_can_be_chosen_between_exact_replies():
    engine = engine_of(MODELS["float32"])
    wanted = bits_of(engine, PROMPT, PARAMS["greedy"])
    drafter = DRAFTERS["exit"](engine.target, "full")
    assert bits_of(engine, PROMPT, PARAMS["greedy"], drafter=drafter) == wanted


def test_without_the_mode_the_bits_differ():
    params = replace(PARAMS["greedy"], exact=False)
    target = tiny_model(hidden_size=256, intermediate_size=512)
    drafted = engine_of(target, make_drafter=lambda target: SuffixDrafter())
    assert bits_of(drafted, PROMPT, params) != bits_of(engine_of(target), PROMPT, params)


@pytest.mark.parametrize("kind", SETTINGS)
def test_models_of_mlx_lm_reply_exactly(kind):
    model = adapted(kind)
    found = [
        bits_of(engine_of(model, make_drafter=make), PROMPT, PARAMS["greedy"])
        for make in (lambda target: SuffixDrafter(), lambda target: NoDrafter())
    ]
    assert found[0] == found[1]


def test_a_reply_does_not_depend_on_what_is_cached():
    model = MODELS["float32"]
    fresh = partial(engine_of, model, make_drafter=lambda target: SuffixDrafter())
    used, params = fresh(), PARAMS["greedy"]
    first = bits_of(used, LONG, params)
    chat = [*LONG, *(token for token, _ in first), 1, 2]
    assert bits_of(used, chat, params) == bits_of(fresh(), chat, params)
    assert bits_of(used, LONG, params) == first


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_reply_that_goes_on_behind_its_limit_has_the_bits_of_a_longer_one(is_cached):
    model, params = MODELS["float32"], PARAMS["sampled"]
    fresh = partial(engine_of, model, make_drafter=lambda target: SuffixDrafter())
    whole, used = bits_of(fresh(), LONG, params), fresh()
    kept = [token for token, _ in bits_of(used, LONG, replace(params, max_tokens=17))]
    told = ToldBits(params)
    events = (used if is_cached else fresh()).generate(LONG, told.params, kept=kept)
    assert emitted(events) == [token for token, _ in whole]
    assert told.bits == whole[17:]


def test_a_prompt_is_read_again_only_from_its_last_whole_chunk_on():
    engine = engine_of(MODELS["float32"])
    bits_of(engine, LONG, PARAMS["greedy"])
    assert engine.target.reusable(len(LONG)) == CHUNK
    usual = replace(PARAMS["greedy"], exact=False)
    bits_of(engine, LONG, usual)  # whose rows are others
    assert engine.target.form is None
    bits_of(engine, LONG, PARAMS["greedy"])
    assert engine.target.reusable(len(LONG)) == CHUNK


def test_layers_with_a_window_go_back_to_the_last_whole_chunk_of_a_prompt():
    model, params = adapted("gemma3_text", max_position_embeddings=512), PARAMS["greedy"]
    engine = engine_of(model)
    first = bits_of(engine, LONG, params)
    assert max(map(engine.target.cache.num_evicted, range(3))) >= CHUNK
    assert engine.target.reusable(len(LONG)) == CHUNK
    assert engine.target.reusable(CHUNK - 1) == 0
    chat = [*LONG, *(token for token, _ in first), 1, 2]
    assert bits_of(engine, chat, params) == bits_of(engine_of(model), chat, params)


def test_a_reply_does_not_depend_on_what_runs_beside_it():
    model, params = MODELS["float32"], PARAMS["greedy"]
    alone = bits_of(engine_of(model), LONG, params)
    engine, told = engine_of(model, make_drafter=lambda target: SuffixDrafter()), ToldBits(params)
    held = engine.generate(LONG, told.params)
    for _ in range(12):
        next(held)
    bits_of(engine, PROMPT, replace(params, exact=False))  # takes the target
    for _ in held:
        pass
    assert told.bits == alone


def test_replies_of_an_open_batch_are_exact_beside_others_that_share_forwards():
    model, params = MODELS["float32"], PARAMS["greedy"]
    prompts = {"exact": LONG, "other": PROMPT, "usual": PROMPT[1:]}
    told = {name: ToldBits(params) for name in prompts}
    told["usual"].params = replace(told["usual"].params, exact=False)
    engine = engine_of(model, make_drafter=lambda target: SuffixDrafter())
    batch = engine.open_batch(prefix_bytes=1 << 20)
    for name, prompt in prompts.items():
        batch.join(prompt, told[name].params)
    while batch.num_replies:
        batch.step()
    for name in ("exact", "other"):
        assert told[name].bits == bits_of(engine_of(model), prompts[name], params)


@each_value(kind=("full", "rotating", "int8"), drafter=("suffix", "none"))
def test_a_reply_resumed_from_stored_rows_has_the_bits_of_a_fresh_one(kind, drafter):
    """None but whole chunks are resumed that a prompt wrote in exact forwards."""
    exact, make = PARAMS["greedy"], {"suffix": SuffixDrafter, "none": NoDrafter}[drafter]
    usual, stored = replace(exact, exact=False), 0 if kind == "rotating" else CHUNK
    model = tiny_model(hidden_size=256, intermediate_size=512)  # whose usual rows are others
    engine = engine_of(model, kind, lambda target: make())
    batch = engine.open_batch(prefix_bytes=1 << 24)

    def written(prompt, params):
        told, events = ToldBits(params), []
        batch.join(prompt, told.params)
        while batch.num_replies:
            events += [event for _, event in batch.step()]
        return events[-1].stats["reused_tokens"], told.bits

    fresh = bits_of(engine_of(model, kind), LONG, exact)
    chat = [*LONG, *(token for token, _ in fresh), 1, 2]
    written(LONG, usual)
    assert written(LONG, exact) == (0, fresh)  # rows of a usual reply are stored
    written(chat, usual)
    written(PROMPT, exact)  # takes the decoder
    assert written([*LONG, 5], exact)[0] == stored
    written(PROMPT, exact)
    resumed = written(chat, exact)  # the rows of the reply are no rows of a prompt
    assert resumed == (stored, bits_of(engine_of(model, kind), chat, exact))


def test_kept_tokens_have_the_bits_that_the_reply_wrote():
    engine, params = engine_of(MODELS["float32"]), replace(PARAMS["greedy"], max_tokens=48)
    whole = bits_of(engine, LONG, params)
    tokens = [token for token, _ in whole]
    assert bits_of(engine, LONG, params, kept=tokens[:40]) == whole[40:]
    bits_of(engine, [*LONG, *tokens, 1, 2], params)  # reads them to other bits
    assert bits_of(engine, LONG, params, kept=tokens[:40]) == whole[40:]


@pytest.mark.parametrize("call", ["generate", "generate_batch"])
def test_an_engine_that_is_exact_writes_every_reply_so(call):
    usual = replace(PARAMS["greedy"], exact=False)
    engine = engine_of(MODELS["float32"], make_drafter=lambda target: SuffixDrafter())
    engine.exact, told = True, ToldBits(usual)
    prompt = LONG if call == "generate" else [LONG]
    for _ in getattr(engine, call)(prompt, told.params):
        pass
    assert told.bits == bits_of(engine_of(MODELS["float32"]), LONG, PARAMS["greedy"])


def test_the_engine_that_load_returns_is_exact_where_that_is_asked(tmp_path):
    folder = save_folder(tmp_path / "tiny")
    for asked in (True, False):
        with mlxspec.load(folder, drafter="none", exact=asked) as engine:
            assert engine.exact is asked


# ---- the examination ---------------------------------------------------------------------------


def clean_model():
    """A model without rounding of its own: every number is a small whole one, at any width."""
    model = tiny_model(max_position_embeddings=8192)
    weights = dict(tree_flatten(model.parameters()))
    zeros = {name: mx.zeros_like(array) for name, array in weights.items() if "proj" in name}
    head, size = weights["lm_head.weight"], model.config.hidden_size
    model.load_weights(
        [
            *zeros.items(),
            ("model.embed_tokens.weight", mx.eye(*head.shape)),
            ("model.norm.weight", mx.ones(size)),
            ("lm_head.weight", mx.round(8 * head)),
        ],
        strict=False,
    )
    return model


def found(monkeypatch, rounds_as, widest=17):
    """The form of a device that rounds the rows of a forward as `rounds_as(rows, keys)` says."""
    forward = Decoder.forward_tree

    def other(decoder, tree):
        states = mx.round(forward(decoder, tree))
        return states + rounds_as(tree.n_nodes, decoder.cache.num_keys(tree.n_nodes)) / 64

    monkeypatch.setattr(Decoder, "forward_tree", other)
    monkeypatch.setattr(exactness.backend, "is_cpu", lambda: False)
    monkeypatch.setattr(exactness, "_LENGTHS", (1, 255, 300))
    monkeypatch.setattr(exactness, "_WIDEST", widest)
    return exactness.find_form(Decoder(clean_model()))


def as_metal(rows, keys):
    """The kernels of a Mac for weights of 16 bits."""
    return next(number for number, most in enumerate((1, 5, 15, 1 << 30)) if rows <= most)


@pytest.mark.parametrize(
    ("chip", "weights", "widths"),
    [
        (None, "float32", range(2, 6)),
        (Chip("M4 Max", 16), "bfloat16", range(6, 16)),  # 15 rows cost as much as 2
        (Chip("M1", 13), "4-bit in 64, QuantizedLinear", [1]),  # n rows cost as much as n forwards
    ],
)
def test_the_widths_that_round_alike_and_promise_most_on_a_chip_are_found(
    monkeypatch, chip, weights, widths
):
    monkeypatch.setattr(exactness.chips, "here", lambda: chip)
    monkeypatch.setattr(exactness, "kinds_of_weights", lambda module: [weights])
    assert found(monkeypatch, as_metal).rows == {width: width for width in widths}


def test_a_device_whose_rounding_changes_after_a_long_text_is_caught(monkeypatch):
    form = found(monkeypatch, lambda rows, keys: 0 if keys < 300 else rows, 9)
    assert form == ExactForm({9: 9}, pads_keys=True)  # one width; a block of keys has one rounding


def test_a_device_whose_rounding_changes_from_forward_to_forward_decodes_plainly(monkeypatch):
    numbers = count()
    assert found(monkeypatch, lambda rows, keys: next(numbers)) == exactness.PLAIN


def test_a_form_is_found_once_and_a_damaged_record_is_not_believed(monkeypatch):
    said, model = [], tiny_model()
    decoder = Decoder(model)
    monkeypatch.setattr(exactness, "_known", {})
    form = exactness.exact_form(decoder, said.append)
    assert "once" in said[0]
    assert decoder.apart().known_form == form
    monkeypatch.setattr(exactness, "_known", {})
    assert exactness.exact_form(Decoder(model), said.append) == form
    assert len(said) == 2
    key = exactness._key(decoder)
    for rows in ({"4": 5}, {"0": 0}, {}, {"99": 99}, [], {"x": 1}):
        exactness._RECORDS.store(key, {"rows": rows, "pads_keys": True})
        assert exactness._stored(key) is None
    exactness._RECORDS.store(key, {"rows": {"4": 4}, "pads_keys": True})
    assert exactness._stored(key) == ExactForm({4: 4}, pads_keys=True)


def test_a_part_of_a_model_has_a_form_of_its_own():
    whole, part = tiny_model(), tiny_model()
    up = part.model.layers[0].mlp.up_proj
    up.weight = up.weight[: up.weight.shape[0] // 2]
    keys = [exactness._key(Decoder(model)) for model in (whole, tiny_model(), part)]
    assert keys[0] == keys[1] != keys[2]
