"""The page on Python and its scripts run as they stand, on a tiny model in place of a real one."""

import inspect
import re
import runpy
from dataclasses import fields

import mlx_lm
import pytest

from mlxspec import api
from mlxspec.drafting.engines import prepare_loaded
from mlxspec.engine.engine import Engine
from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, Options
from tests.support.paths import ROOT
from tests.support.qwen3_folder import save_qwen3
from tests.support.tiny import tiny_model
from tests.support.toy_chat import CHATML, byte_tokenizer

PAGE = ROOT / "docs" / "python.md"
EXAMPLES = ROOT / "docs" / "examples"
OWN_DRAFTER = EXAMPLES / "own_drafter.py"
SCRIPTS = sorted({*EXAMPLES.glob("*.py")} - {OWN_DRAFTER})  # that one has a test of its own
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def tiny_default(monkeypatch):
    """Let `load` return an engine of a tiny model; its arguments have to be those that it takes."""
    tokenizer = byte_tokenizer(CHATML)
    model = tiny_model(vocab_size=tokenizer.vocab_size, max_position_embeddings=2048)
    target = LoadedModel(model, tokenizer, "tiny", "float32")
    signature = inspect.signature(api.load)

    def load(*args, **settings):
        given = signature.bind(*args, **settings).arguments.get("settings", {})
        return prepare_loaded(target, Options(**{"drafter": "suffix", **given})).engine

    monkeypatch.setattr(api, "load", load)


@pytest.fixture
def tiny_hub(monkeypatch, tmp_path):
    """Let `mlx_lm.load` return a tiny model in place of one of the hub."""
    model = mlx_lm.load(str(save_qwen3(tmp_path / "model")))
    monkeypatch.setattr(mlx_lm, "load", lambda name: model)


def run_page(blocks=BLOCKS):
    namespace = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    return namespace


@pytest.mark.usefixtures("tiny_default", "tiny_hub")
def test_the_blocks_of_the_page_run_one_after_the_other(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    names = run_page()
    shown = capsys.readouterr().out
    assert len(BLOCKS) == TEXT.count("```python")
    assert names["fast"].drafter.name == "suffix"
    assert names["echo"].tokens
    assert names["wrapped"].target.model.source is names["model"]
    assert shown.endswith("\ntree\n")
    assert len(names["chat"].turns) == 3
    assert "suffix\n" in shown
    assert "tokens a round with a draft" in shown


@pytest.mark.usefixtures("own_facts")
def test_the_first_block_of_the_page_runs_with_the_default_model(capsys):
    run_page(BLOCKS[:1])
    assert capsys.readouterr().out.count("Paris") == 2


def test_the_program_of_the_readme_runs(tiny_default, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(import mlxspec\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    run_page(found)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(path, tiny_default, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_drafter_of_the_script_does_not_change_what_is_said(tiny_default, capsys):
    runpy.run_path(str(OWN_DRAFTER), run_name="__main__")
    parts = re.split(r"\n-- ([\w-]+): (\d+) forwards\n\n", capsys.readouterr().out)
    plain, none, plain_forwards, drafted, own, forwards, _ = parts
    assert (none, own) == ("none", "last-time")
    assert plain == drafted
    assert int(forwards) <= int(plain_forwards) == 32


def test_what_the_page_links_to_is_there_and_every_script_is_short():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert links
    assert all((PAGE.parent / link).exists() for link in links)
    assert 5 <= len([*SCRIPTS, OWN_DRAFTER]) <= 10
    assert all(len(p.read_text().splitlines()) <= 60 for p in [*SCRIPTS, OWN_DRAFTER])
    assert "(docs/python.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_the_page_says_of_ends_and_drafts_has_the_names_of_arguments():
    ends = set(re.findall(r"^\| `(\w+)=", TEXT, re.MULTILINE))
    calls = inspect.signature(Engine.generate).parameters
    told = {"max_tokens", "stop", "stop_tokens", "stop_repeats", "ignore_eos"}
    assert ends == told | {"stop_when", "should_stop"}
    assert ends <= {field.name for field in fields(GenerationParams)} | set(calls)
    rows = re.search(r"\| argument of `load` .*?\n\n", TEXT, re.DOTALL)[0]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE))))
    assert named <= {field.name for field in fields(Options)}
    assert {"branching", "depth", "exit_threshold", "chain_rule"} <= named
