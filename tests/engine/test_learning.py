"""What the table learns from run to run: where it goes, who asks for it, and who does not."""

import pytest

from mlxspec.api import prepare
from mlxspec.budget import FixedBudget
from mlxspec.drafting import auto
from mlxspec.drafting.laps import Evidence
from mlxspec.loading import load_model
from mlxspec.loading.heads.file import fingerprint
from mlxspec.params import GenerationParams, Options
from mlxspec_app.settings.file import Settings
from mlxspec_app.user.paths import find_paths
from mlxspec_cli.arguments import options
from mlxspec_cli.commands.chat import filled_in
from mlxspec_cli.parser import build_parser
from tests.support.model_folders import save_folder
from tests.support.tiny import emitted

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_folder(tmp_path_factory.mktemp("target") / "tiny")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(auto, "_TOKENS_PER_PROMPT", 4)
    return tmp_path / "home"


def reply(engine):
    """Tokens of a reply, and how many forwards they took."""
    params = GenerationParams(max_tokens=40, ignore_eos=True)
    # With another budget a clock would say how much is drafted.
    events = list(engine.generate(PROMPT, params, budget=FixedBudget()))
    return emitted(events), events[-1].stats["target_forwards"]


def engine_for(target, drafter="table", **settings):
    return prepare(target, Options(drafter, **settings), say=pytest.fail).engine


def test_a_second_run_says_the_same_in_fewer_forwards(target, tmp_path):
    first = engine_for(target, "suffix,table", learn=tmp_path / "new")
    cold = reply(first)
    del first  # what goes away saves; so does a process that ends
    loaded = load_model(target)
    (path,) = (tmp_path / "new").glob("*.safetensors")
    assert path.stem == fingerprint(loaded.config, loaded.tokenizer)
    warm = reply(engine_for(target, "suffix,table", learn=tmp_path / "new"))
    assert warm[0] == cold[0] == reply(engine_for(target, "none"))[0]
    assert warm[1] < cold[1]


@pytest.mark.parametrize("settings", [{}, {"drafter": "suffix", "learn": "{folder}"}])
def test_nothing_is_kept_unasked_or_without_a_table(target, tmp_path, home, settings):
    settings = {name: value.format(folder=tmp_path / "learn") for name, value in settings.items()}
    engine = engine_for(target, **settings)
    reply(engine)
    del engine
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_trials_of_drafters_are_not_learned(target, tmp_path, monkeypatch):
    def only_pool(names, run, **settings):
        assert run("pool", 0, 5.0) > 0  # tokens/s
        return Evidence()  # without a lap the safe default is taken, which is the pool

    monkeypatch.setattr(auto, "run_laps", only_pool)
    prepared = prepare(target, Options(learn=tmp_path), say=lambda line: None)
    assert prepared.choice.drafter == "pool"
    del prepared
    assert list(tmp_path.glob("*.safetensors")) == []


# ---- the command line and the settings -------------------------------------------------------


def asked(line, settings):
    args = build_parser().parse_args(line)
    given = options(args if settings is None else filled_in(args, settings))
    return given.learn, given.prefixes


@pytest.mark.parametrize(
    ("line", "settings", "learns", "keeps_rows"),
    [
        (["chat"], Settings(), True, True),
        (["chat"], Settings(learn=False), False, False),
        (["chat", "--no-learn"], Settings(), False, False),
        (["chat", "--learn"], Settings(learn=False), True, True),
        (["generate"], None, False, False),
        (["generate", "--learn"], None, True, False),
        (["serve"], None, False, False),
        (["serve", "--prefixes"], None, False, True),
    ],
)
def test_a_chat_learns_unless_told_not_to_and_others_only_when_asked(
    line, settings, learns, keeps_rows
):
    paths = find_paths()
    kept = paths.learned if learns else None, paths.prefixes if keeps_rows else None
    assert asked(line, settings) == kept


def test_a_chat_with_data_elsewhere_learns_there(tmp_path):
    assert asked(["chat", "--data-dir", str(tmp_path)], Settings())[0] == tmp_path / "learned"
