"""What an examination found is said wherever a model is listed, loaded or answering."""

import json
import os

import pytest

from mlxspec.adapted.config import Admission
from mlxspec.drafting.catalogue import list_models, model_entry
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import admissions, load_model, mlx_lm
from mlxspec.loading.fetch.models import describe_model
from mlxspec_cli.commands import doctor
from mlxspec_cli.main import main
from tests.support.hub_cache import cached_folder
from tests.support.model_folders import save_folder, save_json
from tests.support.qwen3_folder import save_foreign

WHY = "draft trees: the draft is 3.0e-01 off, 2.0e-05 is allowed"
CHAINS = Admission("chain", WHY, 1e-6, 2.5)
NOTHING = Admission(None, f"{WHY}; single tokens: it is off", 0.0, 2.5)


pytestmark = pytest.mark.usefixtures("hub")


@pytest.fixture
def finds(monkeypatch):
    """Let the next examinations find something given."""
    return lambda admission: monkeypatch.setattr(mlx_lm, "examine", lambda *_: admission)


def drafts_of(folder):
    return model_entry(describe_model(folder, "m", "m")).drafts


def test_a_list_says_what_is_known_before_and_after_a_load(hub):
    folder = save_foreign(cached_folder(hub, "org/foreign"))
    save_folder(cached_folder(hub, "org/own"))
    said = {entry.source: entry.drafts for entry in list_models()}
    assert said["org/foreign"] == "drafts not examined yet"
    assert said["org/own"] == "draft trees"
    load_model(folder)
    said = {entry.source: entry.drafts for entry in list_models()}
    assert said["org/foreign"] == "draft trees"


def test_a_limit_is_said_again_at_each_load_and_in_the_list(tmp_path, finds):
    finds(CHAINS)
    folder = save_foreign(tmp_path / "m")
    first, later = [], []
    load_model(folder, say=first.append)
    load_model(folder, say=later.append)
    assert first[-1] == f"compared in 2.5 s: draft chains ({WHY})"
    assert later == [f"qwen3 was compared before: draft chains ({WHY})"]
    assert drafts_of(folder) == f"draft chains ({WHY})"


def test_a_model_that_was_refused_is_listed_with_the_reason(tmp_path, finds):
    finds(NOTHING)
    folder = save_foreign(tmp_path / "m")
    with pytest.raises(UnsupportedModelError, match="it is off"):
        load_model(folder)
    assert "it is off" in describe_model(folder, "m", "m").problem


def test_an_admission_of_other_versions_or_another_config_counts_for_nothing(
    tmp_path, monkeypatch, finds
):
    finds(CHAINS)
    folder = save_foreign(tmp_path / "m")
    load_model(folder)
    later = (folder / "config.json").stat().st_mtime_ns + 10**9
    with monkeypatch.context() as patch:
        patch.setattr(admissions, "conditions", lambda: "mlx 99")
        assert drafts_of(folder) == "drafts not examined yet"
    assert drafts_of(folder) == CHAINS.words
    os.utime(folder / "config.json", ns=(later, later))
    assert drafts_of(folder) == "drafts not examined yet"


@pytest.mark.parametrize("damage", ['{"KEY": {"key": 5}}', '{"KEY": {"key": "gone"}}'])
def test_a_damaged_note_is_none(tmp_path, damage, finds):
    finds(CHAINS)
    folder = save_foreign(tmp_path / "m")
    load_model(folder)
    (path,) = (tmp_path / "home").glob("admitted_places.json")
    (key,) = json.loads(path.read_text())
    path.write_text(damage.replace("KEY", key))
    assert drafts_of(folder) == "drafts not examined yet"


def test_the_doctor_lists_admissions_with_reason_time_and_age_and_forgets_them(
    tmp_path, finds, monkeypatch, capsys
):
    finds(CHAINS)
    folder = save_foreign(tmp_path / "m")
    load_model(folder)
    text = doctor.admissions_text(doctor.examine().admissions)
    assert "qwen3               draft chains (draft trees: the draft is 3.0e-01 off" in text
    assert "in 2.5 s" in " ".join(text.split())
    assert "other versions" not in text
    monkeypatch.setattr(admissions, "conditions", lambda: "mlx 99")
    assert "other versions" in " ".join(doctor.admissions_text(doctor.examine().admissions).split())
    assert main(["doctor", "--forget"]) == 0
    assert "forgot 1 comparison" in capsys.readouterr().out
    assert admissions.stored() == {}
    lines = []
    load_model(folder, say=lines.append)
    assert [line.split()[0] for line in lines] == ["comparing", "compared"]


def test_a_long_examination_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(mlx_lm, "_EVERY_S", 0.0)
    lines = []
    load_model(save_foreign(tmp_path / "m"), say=lines.append)
    between = lines[1:-1]
    assert between[0] == "comparing drafts: 4 of 14 texts"  # the first has three prefixes
    assert all(line.endswith(" of 14 texts") for line in between)


def test_json_of_a_reply_has_the_drafts(tmp_path, capsys, finds):
    finds(CHAINS)
    folder = save_foreign(tmp_path / "m")
    save_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>"})
    flags = ["--drafter", "none", "--max-tokens", "2", "--json"]
    assert main(["generate", "--model", str(folder), "--prompt", "a b", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["stats"]["drafts"] == CHAINS.words
