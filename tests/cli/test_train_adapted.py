"""`mlxspec train` for a model that mlx-lm runs: from a corpus to a reply with drafts."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

from mlxspec import api
from mlxspec.loading.heads.file import read_drafter_file
from mlxspec.params import GenerationParams
from mlxspec.train.data.corpus import save_corpus, shard_path
from tests.cli.test_train import conversation, train, train_head
from tests.support.qwen3_folder import save_qwen3
from tests.support.tiny import emitted

WORDS = {"medusa": "medusa", "eagle3": "eagle3", "exit": "exit", "draft-model": "model"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One home for the module: the model is examined once."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def workshop(tmp_path_factory, home):
    folder = tmp_path_factory.mktemp("workshop")
    save_qwen3(folder / "tiny", num_hidden_layers=4)
    corpus = folder / "work" / "corpus"
    corpus.mkdir(parents=True)
    save_corpus(shard_path(corpus, 0), [conversation(number) for number in range(16)])
    assert train(folder, "features") == 0
    return folder


@pytest.fixture(scope="module")
def text(workshop):
    """The greedy text of mlx-lm itself."""
    model, _ = load_model(workshop / "tiny")
    return [token for token, _ in generate_step(mx.array([3, 1, 2]), model, max_tokens=8)]


def reply_of(workshop, drafter):
    engine = api.load(workshop / "tiny", drafter=drafter)
    assert engine.drafter.name == drafter
    params = GenerationParams(max_tokens=8, ignore_eos=True)
    return emitted(engine.generate([3, 1, 2], params))


@pytest.mark.parametrize("kind", WORDS)
def test_a_drafter_trained_here_is_found_by_its_word(workshop, home, text, kind, capsys):
    assert train_head(workshop, kind) == 0
    assert capsys.readouterr().out.startswith(str(home / "drafters"))
    assert reply_of(workshop, WORDS[kind]) == text


def test_a_table_is_made_with_features_and_without(workshop, home, text, tmp_path):
    for features in (workshop / "work" / "features", tmp_path / "none"):
        assert train(workshop, "table", "--features", features) == 0
        assert reply_of(workshop, "table") == text
        (path,) = (home / "drafters").glob("*-table.safetensors")
        assert read_drafter_file(path).card["feature_shards"] == features.is_dir()
    assert api.load(workshop / "tiny", drafter="table").drafter.cursor(0).next_probs()
