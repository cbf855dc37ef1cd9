"""What shapes drafting, and what is said about a number that is out of range."""

import pytest
from mlx.utils import tree_flatten

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.drafting.registry import build_drafter
from mlxspec.loading import load_model
from mlxspec.params import Options
from tests.support.drafter_files import save_drafter
from tests.support.model_folders import save_folder
from tests.support.tiny import tiny_model
from tests.support.tiny_heads_exit import exit_head


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Options(exit_threshold=0.0), "threshold must be more than 0 and at most 1; got 0"),
        (lambda: Options(exit_threshold=1.5), "threshold must be .* at most 1; got 1.5"),
        (
            lambda: DraftModelDrafter(Decoder(tiny_model()), 24, lookahead=0),
            "lookahead must be 1 or more; got 0",
        ),
    ],
)
def test_a_number_out_of_range_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("asked", "expected"), [(None, 0.6), (0.25, 0.25)])
def test_an_early_exit_is_as_sure_as_was_asked_for(asked, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    loaded = load_model(save_folder(tmp_path / "tiny"))
    head = exit_head(loaded.model)
    tensors = dict(tree_flatten(head.parameters()))
    path = save_drafter(tmp_path / "exit.safetensors", "exit", head.config, tensors)
    context = make_drafter_context(loaded, Options(exit_threshold=asked), lambda line: None)
    assert build_drafter(str(path), context).threshold == expected
