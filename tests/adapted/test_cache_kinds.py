"""Rings and packed rows: models that misread over one of these are mended or refused by name."""

import pytest

from mlxspec.adapted.admission import examine
from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.loading import mlx_lm
from tests.adapted.test_admission import WINDOWS, change_positions
from tests.support.tiny import ToyTokenizer
from tests.support.tiny_adapted import adapted
from tests.support.zoo import PARENTS, PATH, TOKENS, build, error, text_of, tree_of

TOLERANCE = 1e-5
RING = {"max_size": 14, "keep": 4}


def over_a_ring(model):
    return Decoder(model, Cache.for_model(model.config, **RING))


# afm7 counts the rows it gets to know where they stand; a window of plamo3 sees a row that its own
# cache does not hold.
@pytest.mark.parametrize("name", ["afm7", "plamo3"])
def test_over_a_ring_tokens_rounds_and_drafts_are_the_same(name):
    model = AdaptedModel(build(name))
    by_tokens, by_rounds = over_a_ring(model), over_a_ring(model)
    text = text_of(24)
    by_rounds.observe(text[:6])
    for token in text[6:]:
        by_rounds.forward_tree(DraftTree.from_lists([token], [-1]))
        by_rounds.commit([0])
    for token in text:
        by_tokens.observe([token])
    assert error(by_tokens.next_logits(), by_rounds.next_logits()) < TOLERANCE
    drafted = by_tokens.tree_logits(tree_of(PARENTS))
    for node in PATH:
        by_tokens.observe([TOKENS[node]])
        assert error(drafted[node], by_tokens.next_logits()) < TOLERANCE


def test_a_text_in_one_piece_is_read_over_a_ring_as_token_by_token():
    model = AdaptedModel(build("afm7"))
    at_once, by_tokens = over_a_ring(model), over_a_ring(model)
    at_once.observe(text_of(24))
    for token in text_of(24):
        by_tokens.observe([token])
    assert error(at_once.next_logits(), by_tokens.next_logits()) < TOLERANCE


def test_a_model_whose_masks_count_positions_is_refused_a_ring_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    source = build("llama4")
    for _ in range(2):  # examined, then known
        model = mlx_lm.admitted(source, ToyTokenizer(96))
        assert set(model.refused_caches) == {"rotating"}
        with pytest.raises(UnsupportedOperationError, match="leave max_kv_size unset"):
            over_a_ring(model)
        Decoder(model)


KINDS = {
    "rotating": lambda cache: cache.max_size is not None,
    "quantised": lambda cache: cache.quantization is not None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_over_one_kind_of_cache_refuses_that_kind_alone(kind, monkeypatch):
    def change(forward, positions):
        is_kind = isinstance(forward.cache, Cache) and KINDS[kind](forward.cache)
        return positions * 2 if is_kind else positions

    change_positions(monkeypatch, change)
    verdict = examine(adapted(WINDOWS, head_dim=32))
    assert verdict.support == "tree"
    assert set(verdict.refused_caches) == {kind}
    assert f"no {kind} cache" in verdict.words


def test_a_sound_model_has_every_kind_of_cache():
    assert examine(adapted(WINDOWS, head_dim=32)).refused_caches == {}
