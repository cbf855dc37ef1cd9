"""Heads from files of mlxspec, folders and hub ids; and inputs that are no heads."""

import json

import mlx.core as mx
import pytest

from mlxspec.errors import MlxspecError, ModelNotFoundError, UnsupportedModelError
from mlxspec.loading import load_head
from mlxspec.loading.heads.file import save_head
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
    medusa,
    save_head_folder,
    save_json,
    tiny_target,
)
from tests.support.hub_cache import cached_folder

MEDUSA = {"hidden_size": D, "vocab_size": V, "num_heads": 2, "num_layers": 1}
EAGLE = {**LAYER, "num_layers": 1, "input_norm": False}
EAGLE3 = {
    **LAYER,
    "target_hidden_size": D,
    "draft_vocab_size": len(TOKENS),
    "capture": [1, 4, 8],
    "norm_before_residual": True,
}
EXIT = {"layer": 3, "hidden_size": D, "intermediate_size": 5, "num_blocks": 1, "threshold": 0.5}
CARD = {"recipe": "two hours", "tokens": 12, "target": {"name": "tiny"}}


def own_heads():
    exit_shapes = {
        "input_norm.weight": (D,),
        "fc.weight": (D, D),
        "fc.bias": (D,),
        "blocks.0.norm.weight": (D,),
        "blocks.0.gate_proj.weight": (5, D),
        "blocks.0.up_proj.weight": (5, D),
        "blocks.0.down_proj.weight": (D, 5),
    }
    ids = {"target_ids": mx.array(TOKENS, mx.int32)}
    return {
        "medusa": (MEDUSA, medusa(2, rows=0, dtype=mx.bfloat16)),
        "eagle": (EAGLE, eagle(embedding=False)),
        "eagle3": (EAGLE3, {**eagle3(rows=0), **ids}),
        "exit": (EXIT, draw({**exit_shapes, "norm.weight": (D,)}) | ids),
    }


def refusal_of(source, target=None) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load_checked(source, target or tiny_target())
    return str(caught.value)


# ---- our own file --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", own_heads())
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_saved_head_comes_back_whole(tmp_path, kind, as_folder):
    config, tensors = own_heads()[kind]
    path = tmp_path / "my-head.safetensors"
    save_head(path, kind, config, tensors, CARD)
    head = load_head(tmp_path if as_folder else path, tiny_target())
    assert (head.kind, head.config, head.card) == (kind, config, CARD)
    assert (head.name, head.unknown) == (tmp_path.name if as_folder else "my-head", ())
    assert head.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        assert head.tensors[name].dtype == array.dtype
        assert mx.array_equal(head.tensors[name], array)


def test_the_same_head_is_the_same_file_and_its_metadata_says_what_it_is(tmp_path):
    config, tensors = own_heads()["exit"]
    for name in "ab":
        save_head(tmp_path / name, "exit", config, dict(tensors), dict(CARD))
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    assert (header["format"], header["kind"]) == ("mlxspec-drafter", "exit")
    assert (json.loads(header["config"]), json.loads(header["card"])) == (config, CARD)


@pytest.mark.parametrize("own_bits", [None, 4])
def test_quantised_tensors_are_checked_and_kept(tmp_path, own_bits):
    settings = {"group_size": 32, "bits": 8}
    if own_bits:
        settings["heads.1.blocks.0"] = {"group_size": 64, "bits": own_bits}
    config = {**MEDUSA, "hidden_size": 64, "quantization": settings}
    tensors = {}
    for path in ("heads.0.blocks.0", "heads.1.blocks.0"):
        own = settings.get(path, settings)
        parts = mx.quantize(mx.ones((64, 64)), own["group_size"], own["bits"])
        names = (f"{path}.weight", f"{path}.scales", f"{path}.biases")
        tensors |= dict(zip(names, parts, strict=True))
        tensors[f"{path}.bias"] = mx.ones(64)
    path, target = tmp_path / "q", tiny_target(hidden_size=64)
    save_head(path, "medusa", config, tensors, {})
    assert load_head(path, target).tensors.keys() == tensors.keys()
    tensors["heads.0.blocks.0.scales"] = mx.ones((64, 1))
    save_head(path, "medusa", config, tensors, {})
    assert "heads.0.blocks.0 is not quantised as its config.json states" in refusal_of(path, target)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("eagle", {"num_attention_heads": None}, "num_attention_heads"),
        ("eagle3", {"capture": [1, 2, 9]}, "capture"),
        ("eagle3", {"capture": [1, 2]}, "fc.weight (8, 24), not (8, 16)"),
        ("exit", {"layer": 8}, "layer"),
        ("exit", {"num_blocks": 2}, "lacks blocks.1.down_proj.weight"),
        ("medusa", {"num_heads": 3}, "states 3 as 'num_heads', and its tensors are those of 2"),
        ("medusa", {"num_layers": 10**12}, "num_layers"),
        ("eagle", {"head_dim": 10**9}, "'head_dim' is 1000000000; it must be a whole number from"),
        ("exit", {"quantization": 4}, "quantization"),
        ("medusa", {"hidden_size": D + 1}, f"'hidden_size' is {D + 1}; it must be {D}"),
        ("medusa", {"accuracies": 0.5}, "'accuracies' is 0.5; it must be a list of shares"),
        ("medusa", {"accuracies": [[0.5], [2]]}, "accuracies"),
        ("eagle3", {"target_hidden_size": [D]}, "target_hidden_size"),
        ("eagle3", {"capture": [[1], 4, 8]}, "capture"),
        ("eagle3", {"capture": []}, "'capture' is []; it must be layers 0 to 8"),
        ("eagle3", {"hidden_size": None}, "config has no 'hidden_size'"),
        ("eagle3", {"hidden_size": 0}, "'hidden_size' is 0; it must be a whole number from 1"),
        ("eagle3", {"capture_alternatives": [[1, 2]]}, "capture_alternatives"),
        ("eagle3", {"capture_alternatives": [[1, 2, 9]]}, "capture_alternatives"),
        ("exit", {"rms_norm_eps": "a"}, "rms_norm_eps"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, kind, changes, expected):
    config, tensors = own_heads()[kind]
    save_head(tmp_path / "x", kind, {**config, **changes}, tensors, {})
    assert expected in refusal_of(tmp_path / "x")


def test_modules_are_counted_where_the_config_is_silent(tmp_path):
    tensors = own_heads()["medusa"][1]
    save_head(tmp_path / "x", "medusa", {"hidden_size": D}, tensors, {})
    assert load_checked(tmp_path / "x", tiny_target()).tensors.keys() == tensors.keys()
    save_head(tmp_path / "x", "medusa", {"hidden_size": D}, {"a": mx.ones(D)}, {})
    assert "its tensors are those of 0" in refusal_of(tmp_path / "x")


@pytest.mark.parametrize(
    ("kind", "name"), [("exit", "num_blocks"), ("exit", "threshold"), ("eagle", "num_layers")]
)
def test_a_null_stands_for_the_usual_number(tmp_path, kind, name):
    config, tensors = own_heads()[kind]
    save_head(tmp_path / "x", kind, {**config, name: None}, tensors, {})
    load_checked(tmp_path / "x", tiny_target())


@pytest.mark.parametrize(
    ("kind", "more", "named"),
    [
        ("exit", {"norm.weight": mx.ones(D, mx.int32)}, "norm.weight as mlx.core.int32, which"),
        ("eagle3", {"norm.weight": mx.ones(D, mx.int32)}, "norm.weight as mlx.core.int32, which"),
        ("exit", {"target_ids": mx.array([1, V])}, f"'target_ids' leads to token {V}"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_refused(tmp_path, kind, more, named):
    config, tensors = own_heads()[kind]
    save_head(tmp_path / "x", kind, config, tensors | more, {})
    assert named in refusal_of(tmp_path / "x")


def test_a_draft_model_is_no_head(tmp_path):
    facts = {"format": "mlxspec-drafter", "kind": "draft-model"}
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {"a": mx.ones(1)}, facts)
    assert "of the kind 'draft-model'" in refusal_of(tmp_path / "x.safetensors")


@pytest.mark.parametrize("config", ["{", "[]"])
def test_damaged_metadata_is_refused(tmp_path, config):
    facts = {"format": "mlxspec-drafter", "kind": "exit", "config": config}
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {"a": mx.ones(1)}, facts)
    assert "its config is" in refusal_of(tmp_path / "x.safetensors")


def test_a_head_that_cannot_be_saved_leaves_nothing(tmp_path):
    with pytest.raises(MlxspecError, match="cannot write "):
        save_head(tmp_path / "no" / "x", "exit", EXIT, {"a": mx.ones(1)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_several_heads_is_refused(tmp_path):
    for kind in ("exit", "medusa"):
        save_head(tmp_path / f"{kind}.safetensors", kind, *own_heads()[kind], {})
    assert "name one file of exit.safetensors, medusa.safetensors" in refusal_of(tmp_path)


# ---- where heads lie -----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["no/such/place", "nowhere", "", "default"])
def test_an_unknown_source_lists_what_is_allowed(source):
    with pytest.raises(ModelNotFoundError, match=r"give a folder, a \.safetensors, \.bin or \.pt"):
        load_head(source, tiny_target())


@pytest.mark.parametrize(
    ("file", "other"),
    [("model.safetensors", "pytorch_model.bin"), ("weights.bin", "training_args.bin")],
)
def test_files_that_are_not_the_weights_are_passed_over(tmp_path, file, other):
    save_head_folder(tmp_path, eagle(), LAYER, file)
    (tmp_path / other).write_bytes(b"not read")
    assert load_head(tmp_path, tiny_target()).kind == "eagle"


def test_a_file_finds_its_config_beside_it_and_may_have_none(tmp_path):
    save_head_folder(tmp_path, eagle(), LAYER, "weights.pt")
    assert load_head(tmp_path / "weights.pt", tiny_target()).config["rope_theta"] == 5000.0
    save_head_folder(tmp_path / "alone", authors_medusa(medusa(2)), file="heads.pt")
    assert load_head(tmp_path / "alone" / "heads.pt", tiny_target()).name == "heads"


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", "{}", "holds no weights of a head"),
        (
            "pytorch_model.bin.index.json",
            '{"weight_map": {"fc.weight": "a.bin", "norm.weight": "b.bin"}}',
            "lacks a.bin, b.bin (2 of 2 weight files)",
        ),
        ("pytorch_model.bin.index.json", "{", "pytorch_model.bin.index.json"),
        ("pytorch_model.bin.index.json", '{"weight_map": {"a": 1}}', "model.bin.index.json"),
    ],
)
def test_a_folder_without_its_weights_is_refused(tmp_path, name, content, named):
    (tmp_path / name).write_text(content)
    assert named in refusal_of(tmp_path)


def test_a_cut_file_is_an_error_of_ours(tmp_path):
    save_head_folder(tmp_path, eagle(), LAYER)
    path = tmp_path / "model.safetensors"
    for length in (0, 5, 40, 400, path.stat().st_size - 1):
        path.write_bytes(path.read_bytes()[:length])
        assert "is damaged or cut short" in refusal_of(path)


# ---- the hub -------------------------------------------------------------------------------


@pytest.fixture
def asked(hub, monkeypatch):
    """What is asked of the hub for a head of which the cache has the config; the last brings it."""
    folder, asked = cached_folder(hub, "org/head"), []

    def download(repository, *, allow_patterns, **kwargs):
        asked.extend(allow_patterns)
        save_head_folder(folder, authors_medusa(medusa(2)), {}, "medusa_lm_head.pt")

    save_json(folder / "config.json", {})
    monkeypatch.setattr("mlxspec.loading.heads.load.snapshot_download", download)
    return asked


def test_pickles_are_fetched_where_there_is_nothing_better_and_only_once(asked):
    for _ in range(2):
        head = load_head("org/head", tiny_target())
        assert (head.kind, head.name) == ("medusa", "org/head")
        assert asked == ["*.json", "*.bin", "*.pt", "*.pth"]


def test_a_head_that_cannot_be_downloaded_says_so(hub):
    with pytest.raises(
        ModelNotFoundError, match="org/other is not cached and cannot be downloaded"
    ):
        load_head("org/other", tiny_target())
