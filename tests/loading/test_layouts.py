"""Heads of other projects: each known layout leads to one set of names, numbers and networks."""

import zipfile

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxspec.drafting.heads import HEADS
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_head
from tests.support.head_folders import (
    LAYER,
    TOKENS,
    D,
    V,
    authors_medusa,
    draw,
    eagle,
    eagle3,
    load_checked,
    maps,
    medusa,
    renamed,
    save_archive,
    save_head_folder,
    save_json,
    save_sharded,
    tiny_target,
    vllm_medusa,
)

IDS = mx.array(TOKENS, mx.int32)
REDUCED = {"truncated_vocab_size": len(TOKENS), "draft_vocab_size": len(TOKENS)}
AUTHORS = {  # published configs state two heads, whatever the file holds
    "base_model_name_or_path": "org/target",
    "medusa_num_heads": 2,
    "medusa_num_layers": 1,
}
VLLM = {"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "vocab_size": V}
FLAT = {**LAYER, "model_type": "llama", "num_hidden_layers": 1}
NESTED = {"model_type": "eagle", "model": FLAT, "truncated_vocab_size": V}
VERIFIER = {"speculators_config": {"verifier": {"name_or_path": "org/target"}}}
EAGLE_SPECULATORS = {"layernorms": False, "transformer_layer_config": FLAT, **VERIFIER}
FLAT3 = {**LAYER, "draft_vocab_size": len(TOKENS)}
SPECULATORS = {
    "transformer_layer_config": LAYER,
    "draft_vocab_size": len(TOKENS),
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    **VERIFIER,
}
FUSED = [("fc.", "fusion_fc."), ("layers.0.", "transformer.")]
RESEARCH = [
    ("embedding_layernorm", "embed_layernorm"),
    ("pre_lm_head_layernorm", "lm_head_layernorm"),
    ("layers.0.input_layernorm", "hidden_layernorm"),
]
TWO_LAYERS = {
    **eagle(),
    **{
        name.replace("layers.0", "layers.1"): array
        for name, array in eagle().items()
        if name.startswith("layers.0")
    },
    "layers.1.input_layernorm.weight": mx.ones(D),
}
BIASES = draw(
    {f"layer.self_attn.{n}_proj.bias": (size,) for n, size in zip("qkv", (24, 12, 12), strict=True)}
)


def reduced(stored, ids="target_ids"):
    return {**stored, ids: IDS}


def mid(stored):
    """An EAGLE-3 head as its authors name it."""
    return renamed(stored, ("layer.", "midlayer.")) | maps()


def rows_of(output):
    return mx.stack([output[token] for token in TOKENS])


def load(tmp_path, stored, config, *, file="model.safetensors", **target):
    folder = save_head_folder(tmp_path / "h", stored, config, file)
    return load_checked(folder, tiny_target(**target))


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    assert all(mx.array_equal(tensors[name], array) for name, array in expected.items())


def refusal_of(*args, **options) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load(*args, **options)
    return str(caught.value)


def eagle3_variants():
    for layer in ("midlayer.", "layers.0.", "model.midlayer."):
        stored, names = eagle3(dtype=mx.float16), ("layer.", layer)
        numbers = {"capture": [2, 4, 5], "norm_before_residual": False, "norm_output": False}
        yield f"eagle3 {layer}", reduced(stored), renamed(stored, names) | maps(), FLAT3, numbers
    names = ("layer.", "layers.0.")
    numbers = {"norm_before_residual": True, "capture": [2, 4, 5]}
    stored = renamed(eagle3(), names) | maps()
    yield "eagle3 of speculators", reduced(eagle3()), stored, SPECULATORS, numbers
    whole, config = eagle3(rows=V, embedding=True), {**FLAT3, "draft_vocab_size": V}
    stored = renamed(whole, ("layer.", "midlayer."))
    yield "eagle3 whole", whole, stored, config, {"draft_vocab_size": V}
    tied = eagle3(rows=0)
    yield "eagle3 tied", reduced(tied), mid(tied), FLAT3, {}
    biased = {**eagle3(), **BIASES}
    numbers = {"attention_bias": True}
    yield "eagle3 biased", reduced(biased), mid(biased), FLAT3, numbers
    for extra, flag in (("input_norm", "norm_before_fc"), ("fc_norm", "fc_norm")):
        stored = eagle3(extra=[extra])
        for stated in ({}, {flag: True}):
            config = {**FLAT3, **stated}
            yield f"eagle3 {extra} {stated}", reduced(stored), mid(stored), config, {flag: True}


def variants():
    """Each layout: the expected tensors, the stored ones, the config, some expected numbers."""
    half, bare = medusa(5, dtype=mx.float16), medusa(2, rows=0)
    numbers = {"hidden_size": D, "vocab_size": V, "num_heads": 5, "num_layers": 1}
    yield "medusa", half, authors_medusa(half), AUTHORS, numbers
    deep = medusa(3, 2)
    yield "medusa deep", deep, authors_medusa(deep, 2), AUTHORS, {"num_layers": 2}
    yield "medusa without outputs", bare, authors_medusa(bare), {**AUTHORS, "version": "2"}, {}
    for prefix in ("", "medusa_heads."):
        yield f"medusa of vLLM {prefix}", deep, vllm_medusa(deep, prefix), VLLM, {}
    output = draw({"out": (V, D)})["out"]
    for name in ("lm_head.weight", "lm_heads.0.weight"):
        shared = {**bare, **{f"heads.{head}.out.weight": output for head in range(2)}}
        config = {**VLLM, "original_lm_head": True}
        yield f"medusa of one {name}", shared, {**vllm_medusa(bare), name: output}, config, {}
    for rows in (len(TOKENS), V):
        stored = medusa(2, rows=rows)
        kept = {n: rows_of(a) if ".out." in n and rows == V else a for n, a in stored.items()}
        tensors = {**vllm_medusa(stored), "token_map": mx.array(TOKENS, mx.int64)}
        yield f"medusa of {rows}", reduced(kept, "token_map"), tensors, {**VLLM, **REDUCED}, {}
        stored = eagle(rows=rows)
        kept = {
            n: rows_of(a) if n == "lm_head.weight" and rows == V else a for n, a in stored.items()
        }
        tensors = {**stored, "token_map": mx.array(TOKENS, mx.int64)}
        numbers = {"draft_vocab_size": len(TOKENS)}
        yield f"eagle of {rows}", reduced(kept), tensors, {**NESTED, **REDUCED}, numbers
    for options in ({}, {"fc_bias": True}, {"fc_bias": True, "qkv_bias": True}):
        stored = eagle(**options, dtype=mx.float16)
        biases = (options.get("fc_bias", False), options.get("qkv_bias", False))
        numbers = dict(zip(("fc_bias", "attention_bias"), biases, strict=True))
        yield f"eagle {options}", stored, stored, FLAT, {**numbers, "input_norm": False}
    yield "eagle deep", TWO_LAYERS, TWO_LAYERS, FLAT, {"num_layers": 2}
    stored, numbers = eagle(fc_bias=True, rows=V), {"rope_theta": LAYER["rope_theta"]}
    for names in (
        [("layers.", "model.layers."), ("embed", "model.embed")],
        [("layers.", "model.model.layers."), ("lm_head", "model.lm_head")],
    ):
        yield f"eagle of vLLM {names}", stored, renamed(stored, *names), NESTED, numbers
    for norms in (False, True):
        stored, config = eagle(norms=norms, rows=V), {**EAGLE_SPECULATORS, "layernorms": norms}
        numbers = {"input_norm": norms}
        yield f"eagle norms={norms}", stored, renamed(stored, *FUSED), config, numbers
    stored = eagle(norms=True)
    yield "eagle of research", stored, renamed(stored, *RESEARCH), FLAT, {"input_norm": True}
    yield from eagle3_variants()


@pytest.mark.parametrize("variant", list(variants()), ids=lambda variant: variant[0])
def test_every_layout_has_its_names_its_numbers_and_a_network(tmp_path, variant):
    name, expected, stored, config, numbers = variant
    head = load(tmp_path, stored, config)
    assert (head.kind, head.name, head.unknown) == (name.split()[0], "h", ())
    assert_same(head.tensors, expected)
    assert {key: head.config[key] for key in numbers} == numbers
    assert "note" not in head.card
    says_so = config.keys() & {"speculators_config", "base_model_name_or_path"}
    assert head.card.get("target") == ({"name": "org/target"} if says_so else None)
    network, _ = HEADS[head.kind]
    network = network.from_checkpoint(head.config, head.tensors)
    taken = dict(tree_flatten(network.parameters()))
    assert_same(taken | {n: IDS for n in expected if n in ("target_ids", "token_map")}, expected)


@pytest.mark.parametrize(
    ("stored", "file"),
    [
        (authors_medusa(medusa(2)), "medusa_lm_head.pt"),
        (mid(eagle3()), "pytorch_model.bin"),
    ],
)
def test_files_of_torch_hold_the_same(tmp_path, stored, file):
    plain = load(tmp_path / "a", stored, {**FLAT3, **AUTHORS})
    assert_same(
        load(tmp_path / "b", stored, {**FLAT3, **AUTHORS}, file=file).tensors, plain.tensors
    )


def test_the_numbers_of_a_layer_are_those_of_shapes_then_of_the_config_then_llama_s(tmp_path):
    scaling = {"rope_type": "linear", "factor": 4.0}
    config = {**FLAT, "rope_scaling": scaling, "intermediate_size": 999}
    layer = {name: LAYER[name] for name in LAYER if name != "max_position_embeddings"}
    biases = {"attention_bias": False, "fc_bias": False}
    own = {"num_layers": 1, "input_norm": False, "draft_vocab_size": V}
    found = load(tmp_path, eagle(), config).config
    assert found == {**layer, **biases, **own, "rope_scaling": scaling}
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": None}
    found = load(tmp_path, eagle(), config).config
    assert (found["head_dim"], found["rope_theta"], found["rms_norm_eps"]) == (6, 10_000.0, 1e-6)
    left_out = {name: LAYER[name] for name in ("head_dim", "num_key_value_heads")}
    config = {**SPECULATORS, "transformer_layer_config": left_out}
    stored = renamed(eagle3(), ("layer.", "layers.0.")) | maps()
    assert load(tmp_path, stored, config).config["num_attention_heads"] == 4


@pytest.mark.parametrize("config", [FLAT3, SPECULATORS], ids=["flat", "speculators"])
@pytest.mark.parametrize("value", [True, False])
def test_flags_that_a_config_states_count(tmp_path, config, value):
    names = ("norm_before_residual", "norm_output")
    stored = mid(eagle3(extra=["input_norm"]))
    inner = {"eagle_config": {"norm_before_fc": False}}
    head = load(tmp_path, stored, {**config, **dict.fromkeys(names, value), **inner})
    assert [head.config[name] for name in (*names, "norm_before_fc")] == [value, value, False]
    assert head.unknown == ("input_norm.weight",)


CAPTURE = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("where", "capture", "alternatives"),
    [
        ({CAPTURE: [1, 3, 6]}, [1, 3, 6], [[2, 4, 7]]),
        ({"eagle_config": {CAPTURE: [1, 3, 6]}}, [2, 4, 7], [[1, 3, 6]]),
        ({"eagle_config": {CAPTURE: [-1, 3, 6]}}, [0, 4, 7], None),
        ({CAPTURE: [1, 3, 8]}, [1, 3, 8], None),
        ({"eagle_config": {"use_aux_hidden_state": True}}, [2, 4, 5], None),
    ],
)
def test_the_position_of_the_field_decides_the_convention_of_layers(
    tmp_path, where, capture, alternatives
):
    stored = mid(eagle3())
    head = load(tmp_path, stored, {**FLAT3, **where})
    assert head.config["capture"] == capture
    assert head.config.get("capture_alternatives") == alternatives


def test_a_narrower_head_brings_its_own_embedding_and_output(tmp_path):
    wide, config = {"hidden_size": 16, "head_dim": 4}, {**FLAT3, "target_hidden_size": 16}
    stored = eagle3(width=16, embedding=True)
    head = load(tmp_path, mid(stored), config, **wide)
    assert (head.config["hidden_size"], head.config["target_hidden_size"]) == (8, 16)
    assert_same(head.tensors, reduced(stored))
    del stored["embed_tokens.weight"]
    refusal = refusal_of(tmp_path, mid(stored), FLAT3, **wide)
    assert "lacks embed_tokens.weight" in refusal


def test_what_does_nothing_is_reported_or_passed_over(tmp_path):
    unknown = {"midlayer.self_attn.q_norm.weight": mx.ones(3), "surprise": mx.ones(2)}
    passed = {"midlayer.self_attn.rotary_emb.inv_freq": mx.ones(2)}
    passed["verifier_lm_head.weight"] = mx.ones((6, D))
    head = load(tmp_path, mid(eagle3()) | unknown | passed, FLAT3)
    assert set(head.unknown) == unknown.keys()
    assert_same(head.tensors, reduced(eagle3()))


# ---- heads in one checkpoint with their target ----------------------------------------------


@pytest.mark.parametrize("ending", ["bin", "safetensors"])
def test_heads_bundled_with_their_target_say_so(tmp_path, ending):
    stored = medusa(2)
    base = draw({"model.embed_tokens.weight": (V, D), "lm_head.weight": (V, D), "model.n": (D,)})
    bundled = {**base, **authors_medusa(stored, prefix="medusa_head.")}
    head = load_head(save_sharded(tmp_path / "h", bundled, AUTHORS, ending), tiny_target())
    assert_same(head.tensors, stored)
    assert head.unknown == ()
    assert "the target must be this very checkpoint" in head.card["note"]


def test_weights_of_the_target_around_bundled_heads_are_not_read(tmp_path):
    """The target's storages are taken out of one shard, and its other shard is missing."""
    stored, shard = medusa(2), "pytorch_model-00001-of-00002.bin"
    bundled = {"model.n": mx.ones(D), **authors_medusa(stored, prefix="medusa_head.")}
    save_head_folder(tmp_path, bundled, {"model_type": "llama"}, shard)
    with zipfile.ZipFile(tmp_path / shard) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    del records["data/0"]
    save_archive(tmp_path / shard, records)
    weight_map = {**dict.fromkeys(bundled, shard), "lm_head.weight": "missing.bin"}
    save_json(tmp_path / "pytorch_model.bin.index.json", {"weight_map": weight_map})
    assert_same(load_head(tmp_path, tiny_target()).tensors, stored)


# ---- refusals -------------------------------------------------------------------------------

PARTS = {
    "medusa": (authors_medusa(medusa(3)), AUTHORS),
    "eagle": (eagle(qkv_bias=True), FLAT),
    "eagle3": (mid(eagle3()), FLAT3),
}


@pytest.mark.parametrize(
    ("kind", "stored", "named"),
    [
        ("medusa", "2.1.weight", "heads.2.out.weight"),
        ("medusa", "1.", "a Medusa head 2, but no Medusa head 1"),
        ("eagle", "layers.0.post_attention", "layers.0.post_attention_layernorm.weight"),
        ("eagle", "layers.0.self_attn.k_proj.bias", "layers.0.self_attn.k_proj.bias"),
        ("eagle3", "fc.weight", "fc.weight"),
        ("eagle3", "midlayer.mlp.up_proj.weight", "layer.mlp.up_proj.weight"),
        ("eagle3", "d2t", "target_ids"),
    ],
)
def test_a_missing_tensor_is_named(tmp_path, kind, stored, named):
    tensors, config = PARTS[kind]
    left = {name: array for name, array in tensors.items() if not name.startswith(stored)}
    assert len(left) < len(tensors)
    assert named in refusal_of(tmp_path, left, config)


@pytest.mark.parametrize(
    ("kind", "more", "named"),
    [
        ("eagle3", {"layers.1.mlp.up_proj.weight": mx.ones((12, D))}, "several layers"),
        ("eagle3", {"d2t": mx.array([0, 0, 0, 0, 0, V - 5])}, f"'d2t' leads to token {V};"),
        ("eagle3", maps(TOKENS[:5]), "the checkpoint has 5 target_ids, not 6"),
        ("eagle3", {"d2t": mx.array([1, 0, 0, 0, 0, 0])}, "'d2t' leads to a token twice"),
        ("eagle", {"token_map": mx.array([1, 1])}, "'token_map' leads to a token twice"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_named(tmp_path, kind, more, named):
    tensors, config = PARTS[kind]
    assert named in refusal_of(tmp_path, {**tensors, **more}, config)


@pytest.mark.parametrize(
    ("kind", "config", "named"),
    [
        ("eagle", {**FLAT, "num_key_value_heads": 4}, "k_proj.weight (12, 8), not (24, 8)"),
        ("eagle", {**FLAT, "rope_scaling": {"rope_type": "magic"}}, "'magic'"),
        ("eagle", {**FLAT, "hidden_act": "gelu"}, "hidden_act"),
        ("eagle", {"model": [1]}, "'model'"),
        ("eagle", {}, "num_attention_heads"),
        ("eagle3", {**SPECULATORS, CAPTURE: [1, 3, 99]}, "layers"),
        ("eagle3", {**SPECULATORS, CAPTURE: [True, 2, 3]}, "layers"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_its_key(tmp_path, kind, config, named):
    assert named in refusal_of(tmp_path, PARTS[kind][0], config)
