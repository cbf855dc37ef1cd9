"""`mlxspec train` from a corpus to a drafter that `--drafter` finds, on a tiny model."""

import json

import numpy as np
import pytest

from mlxspec import api
from mlxspec.loading.heads.file import read_drafter_file
from mlxspec.params import GenerationParams
from mlxspec.train.data.corpus import Conversation, DataSettings, save_corpus, shard_path
from mlxspec.train.data.making import DataProgress
from mlxspec.train.own_table import TableProgress, TableVerdict
from mlxspec.train.trainer import Progress
from mlxspec_cli.commands import train as command
from mlxspec_cli.commands.train import progress_text
from mlxspec_cli.main import main
from tests.support.model_folders import save_folder, tiny_config
from tests.support.tiny import emitted

RECIPE = """
kind = "{kind}"
tokens = 64
batch_tokens = 16
draft_vocab_size = 16
evaluate_every = 32
num_evaluated = 4
"""
STUDENT = """
[options]
hidden_size = 32
intermediate_size = 32
num_layers = 1
head_dim = 16
"""


def conversation(number):
    """Twelve tokens of prompt and answer that repeat with a period of the conversation's own."""
    tokens = np.array([(number + place) % (3 + number % 4) for place in range(16)], np.int32)
    mask = np.array([0] * 4 + [1] * 12, np.uint8)
    return Conversation(tokens, mask, is_heldout=number % 4 == 0)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a model and, where training leaves its files, a corpus and its features."""
    folder = tmp_path_factory.mktemp("workshop")
    save_folder(folder / "tiny", tiny_config(num_hidden_layers=8))
    corpus = folder / "work" / "corpus"
    corpus.mkdir(parents=True)
    save_corpus(shard_path(corpus, 0), [conversation(number) for number in range(16)])
    assert train(folder, "features") == 0
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def train(workshop, step, *arguments):
    folders = ["--model", str(workshop / "tiny"), "--folder", str(workshop / "work")]
    return main(["train", step, *folders, *map(str, arguments)])


def train_head(workshop, kind, *arguments):
    path = workshop / f"{kind}.toml"
    path.write_text(RECIPE.format(kind=kind) + (STUDENT if kind == "draft-model" else ""))
    return train(workshop, kind, "--recipe", path, *arguments)


@pytest.mark.parametrize("kind", ["medusa", "eagle3", "exit", "draft-model"])
def test_a_drafter_trained_here_is_found_by_its_word(workshop, home, kind, capsys):
    assert train_head(workshop, kind) == 0
    assert capsys.readouterr().out.startswith(str(home / "drafters"))
    params = GenerationParams(max_tokens=8)
    replies = []
    for drafter in ("none", "model" if kind == "draft-model" else kind):
        engine = api.load(workshop / "tiny", drafter=drafter)
        assert engine.drafter.name == drafter
        replies.append(emitted(engine.generate([3, 1, 2], params)))
    assert replies[0] == replies[1]


def test_a_table_made_here_is_found_by_pool(workshop, home):
    assert train(workshop, "table") == 0
    pool = api.load(workshop / "tiny", drafter="pool").drafter
    assert pool.drafters[1].cursor(0).next_probs()
    file = read_drafter_file(next((home / "drafters").iterdir()))
    assert file.kind == "table"
    seen = {conversation(number).tokens.tobytes() for number in range(16) if number % 4}
    assert file.card["tokens_seen"] == 12 * len(seen)  # in answers; equal conversations count once
    assert file.card["target"]["name"] == "tiny"


def test_a_table_of_minutes_is_made_of_what_the_model_writes(workshop, home, monkeypatch, capsys):
    asked, verdicts = [], [TableVerdict(1.9, 1.4), TableVerdict(1.4, 1.4)]

    def make(loaded, seconds, **more):
        asked.append((loaded.name, seconds, more))
        yield TableProgress(0.5, 70)
        yield TableProgress(1.0, 140)
        yield verdicts.pop(0)

    monkeypatch.setattr(command, "make_own_table", make)
    monkeypatch.setattr(command, "_print_memory", lambda gb: None)
    monkeypatch.setattr(command, "estimate_memory", lambda *_: 0)
    for out, said in (
        ("table.safetensors\n", "1.90 tokens a forward, before 1.40"),
        ("", "dropped"),
    ):
        assert train(workshop, "table", "--minutes", "2.5", "--max-mb", 1) == 0
        told = capsys.readouterr()
        assert told.out.endswith(out)
        assert bool(told.out) == bool(out)
        assert said in told.err
    name, seconds, more = asked[0]
    assert (name, seconds, more["max_bytes"]) == ("tiny", 150.0, 1_000_000)
    assert more["folder"] == workshop / "work"
    assert more["out"].parent == home / "drafters"


def test_stopped_minutes_resume(workshop, monkeypatch, capsys):
    closed = []

    def make(*_, **more):
        try:
            yield TableProgress(0.5, 70)
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    monkeypatch.setattr(command, "make_own_table", make)
    monkeypatch.setattr(command, "estimate_memory", lambda *_: 0)
    assert train(workshop, "table", "--minutes", "1") == 130
    assert "the same command resumes here" in capsys.readouterr().err
    assert closed == [True]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "ten", "20000"])
def test_minutes_are_a_time(workshop, value, capsys):
    with pytest.raises(SystemExit):
        train(workshop, "table", "--minutes", value)
    assert f"'{value}' is no time: give minutes above 0" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["--corpus", "--features"])
def test_minutes_take_no_other_text(workshop, other, capsys):
    assert train(workshop, "table", "--minutes", "1", other, workshop) != 0
    assert f"leave out {other}" in capsys.readouterr().err


def test_answers_that_were_not_held_out_become_seed_text(workshop, tmp_path, monkeypatch, capsys):
    asked = []

    def write(path, texts, max_bytes):
        asked.append((texts, max_bytes))
        path.write_bytes(b"packed")
        return texts[:3]

    monkeypatch.setattr(command, "read_seed", lambda path: ["an earlier text"])
    monkeypatch.setattr(command, "write_seed", write)
    out = tmp_path / "text.xz"
    options = ["--add", "more.xz", "--max-mb", "0.5", "--out", out]
    assert train(workshop, "seed-text", *options) == 0
    decode = api.load(workshop / "tiny", drafter="none").tokenizer.decode
    answers = [
        decode(one.tokens[one.mask > 0].tolist())
        for one in map(conversation, range(16))
        if not one.is_heldout
    ]
    assert asked == [(["an earlier text", *answers], 500_000)]
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert f"{len(answers) - 2} were left out" in said.err


def test_eval_prints_a_table_or_json_of_every_combination(workshop, capsys):
    options = ["--drafter", "suffix", "--answers", 1, "--max-tokens", 3, "--temps", 0]
    assert train(workshop, "eval", *options, "--nodes", 2, 4, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["drafter"] == "suffix"
    assert [one["num_draft_tokens"] for one in document["figures"]] == [2, 4]
    assert train(workshop, "eval", *options, "--nodes", 2, "--branching", 1) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_card_holds_the_recipe_and_names_the_target(workshop, tmp_path):
    out = tmp_path / "head.safetensors"
    assert train_head(workshop, "medusa", "--out", out, "--seed", "9") == 0
    card = read_drafter_file(out).card
    assert (card["recipe"]["tokens"], card["recipe"]["seed"]) == (64, 9)
    assert card["target"]["name"] == "tiny"
    names = sorted(path.name for path in (workshop / "work" / "features").iterdir())
    assert names == ["heldout-00000.safetensors", "train-00000.safetensors"]


@pytest.mark.parametrize(
    ("num_heldout", "said"), [(1, "1 of these are held out"), (0, "ask for more --tokens")]
)
def test_data_is_made_as_the_arguments_say(workshop, capsys, monkeypatch, num_heldout, said):
    asked = []

    def make(loaded, out, settings, show):
        asked.append((loaded.name, out, settings))
        made = DataProgress(num_tokens=40, num_conversations=2, num_heldout=num_heldout)
        show(made)
        return made

    monkeypatch.setattr(command, "make_corpus", make)
    monkeypatch.setattr(command, "estimate_memory", lambda *_: 2e9)
    assert train(workshop, "data", "--tokens", 40, "--batch-size", 4, "--seed", 3) == 0
    settings = DataSettings(num_tokens=40, batch_size=4, seed=3)
    assert asked == [("tiny", workshop / "work" / "corpus", settings)]
    out, err = capsys.readouterr()
    assert out == f"{workshop / 'work' / 'corpus'}\n"
    assert "takes about 2.0 GB of memory" in err
    assert "40 tokens in 2 conversations" in err
    assert said in err


def test_the_bar_shows_loss_and_what_is_held_out_by_depth():
    progress = Progress(loss=1.25)
    assert progress_text(progress) == "loss 1.250"
    progress.curve.append({"mean_acceptance_length": 1.5, "top1_by_depth": [0.4, 0.1]})
    assert progress_text(progress) == "loss 1.250, held out 1.50 (0.40 0.10)"


def test_without_features_it_says_which_step_makes_them(workshop, capsys, tmp_path):
    assert train_head(workshop, "medusa", "--features", tmp_path / "none") == 1
    assert "`mlxspec train features`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, 1, "not a recipe that can be read"),
        ('kind = "exit"', 2, "is a recipe for 'exit': give one for 'medusa'"),
        ('kind = "oracle"', 2, "choose from medusa, eagle3, exit, draft-model"),
        ('kind = "medusa"\ntokens = 0', 1, "tokens must be 1 or more; got 0"),
        ('kind = "medusa"\n[options]\nheads = 2', 2, "'heads'"),
    ],
)
def test_a_recipe_that_is_wrong_is_one_line(workshop, tmp_path, capsys, text, code, message):
    path = tmp_path / "recipe.toml"
    if text is not None:
        path.write_text(text)
    assert train(workshop, "medusa", "--recipe", path) == code
    assert_one_line(capsys, message)


@pytest.mark.parametrize(("step", "content"), [("features", None), ("eval", b"half")])
def test_a_corpus_that_cannot_be_read_is_one_line(workshop, tmp_path, capsys, step, content):
    path = tmp_path / "corpus.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert train(workshop, step, "--corpus", path) == 1
    assert_one_line(capsys, str(path))


@pytest.mark.parametrize("step", ["table", "medusa"])
def test_a_damaged_feature_shard_is_named(workshop, tmp_path, capsys, step):
    for path in (workshop / "work" / "features").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[:-64])
    assert train(workshop, step, "--features", tmp_path) == 1
    err = capsys.readouterr().err
    assert "train-00000.safetensors is damaged or cut short" in err
    assert "Traceback" not in err


def test_a_folder_is_not_a_file_to_write(workshop, capsys, tmp_path):
    assert train_head(workshop, "medusa", "--out", tmp_path) == 2
    assert "is a folder: name a file in it" in capsys.readouterr().err


def assert_one_line(capsys, message):
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("step", "what_now"), [("features", "resumes here"), ("table", "starts again")]
)
def test_ctrl_c_says_how_to_go_on(workshop, capsys, monkeypatch, step, what_now):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(command.STEPS, step, interrupted)
    assert train(workshop, step) == 130
    assert f"the same command {what_now}" in capsys.readouterr().err
