"""From `load(drafter=...)` to the drafter: words, files, folders, lists, and what is refused."""

import json
from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec import api
from mlxspec.api import prepare
from mlxspec.budget import CostCurve
from mlxspec.drafters.table.building import Occurrences, build_table
from mlxspec.drafters.table.file import save_table as save
from mlxspec.drafters.table.rows import pack
from mlxspec.drafting import auto, engines, heads, registry
from mlxspec.drafting.auto import candidates, note_reply
from mlxspec.drafting.heads import Probe
from mlxspec.errors import MlxspecError, VocabularyMismatchError
from mlxspec.loading import load_model
from mlxspec.loading.fetch.sources import Source
from mlxspec.loading.heads.file import HeadCheckpoint, fingerprint
from mlxspec.params import GenerationParams, Options, SamplingParams
from mlxspec.trace.events import PrefillProgress
from tests.support.drafter_files import medusa_parts, nonsense_parts, save_drafter
from tests.support.drafting import stored_rows
from tests.support.machine import trial_of
from tests.support.model_folders import random_model, save_folder, tiny_config
from tests.support.tiny import emitted
from tests.support.tiny_heads_exit import exit_head

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
SAMPLED = SamplingParams(temperature=0.7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_folder(tmp_path_factory.mktemp("target") / "tiny")


@pytest.fixture(scope="module")
def target_name(folder):
    loaded = load_model(folder)
    return fingerprint(loaded.config, loaded.tokenizer)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache folder of the test's own: nothing trained, nothing measured. Short trials."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        "mlxspec.engine.engine.quick_costs", lambda *_: CostCurve({1: 1.0, 32: 2.0})
    )
    monkeypatch.setattr(heads, "_TOKENS_PER_PROMPT", 12)
    monkeypatch.setattr(auto, "_TOKENS_PER_PROMPT", 4)
    monkeypatch.setattr(auto, "PROMPTS", ("abcab",) * 8)
    return tmp_path / "home"


@pytest.fixture
def own_medusa(home, target_name):
    path = home / "drafters" / "medusa.safetensors"
    return save_drafter(path, "medusa", *medusa_parts(), target_name)


def save_table(path, target="any", tokenizer=""):
    """A table that knows 9 and, less probably, 11 to follow 3."""
    tokens, probs = np.array([[9, 11]] * 4, np.int32), np.array([[0.75, 0.25]] * 4, np.float32)
    contexts = pack(np.array([[-1, -1, 3]] * 4))
    rows = build_table([Occurrences(contexts, tokens, probs)], 24)
    path.parent.mkdir(parents=True, exist_ok=True)
    card = {"target": {"fingerprint": target}}
    save(path, rows, 24, tokenizer=tokenizer, card=card)
    return path


def save_draft_model(path, target=""):
    config = tiny_config("qwen2", hidden_size=16, head_dim=4)
    return save_drafter(
        path, "draft-model", config, dict(tree_flatten(random_model(config).parameters())), target
    )


def drafter_of(folder, drafter, **options):
    return prepare(folder, Options(drafter, **options), say=lambda line: None).engine.drafter


@pytest.mark.parametrize("drafter", ["pool", "table", "suffix,table"])
def test_a_table_begins_with_the_seed_text_unless_one_was_trained(
    folder, home, target_name, monkeypatch, drafter
):
    asked, ready = [], SimpleNamespace(rows=stored_rows({(3,): (9, {9: 1.0})}, {}, {}))
    monkeypatch.setattr(registry, "find_seed_table", lambda *args: asked.append(args) or ready)
    built = drafter_of(folder, drafter)
    built.start(PROMPT, SamplingParams(temperature=0.0), mx.random.key(0))
    assert 9 in built.cursor(3).next_probs()
    assert len(asked) == 1
    save_table(home / "drafters" / "t.safetensors", target_name)
    drafter_of(folder, drafter)
    assert len(asked) == 1


def test_a_measurement_waits_for_the_seed_table(folder, monkeypatch):
    said = []
    table = SimpleNamespace(rows=(), wait=lambda most: said.append("waited"))
    monkeypatch.setattr(registry, "find_seed_table", lambda *args: table)
    monkeypatch.setattr(auto, "run_laps", lambda *args, **more: said.append("measured") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        drafter_of(folder, "auto")
    assert said == ["waited", "measured"]


def test_a_verdict_without_a_trained_table_is_for_one_seed_text(monkeypatch):
    keys = []
    for digest in ("one", "two"):
        monkeypatch.setattr(auto, "seed_text_digest", lambda digest=digest: digest)
        keys.append(auto.verdict_key("a", "b", "c", Options().limits, {}))
    assert keys[0] != keys[1]


def names_in(pool):
    return [drafter.name for drafter in pool.drafters]


# ---- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["none", "suffix", "table", "pool"])
def test_a_word_that_needs_only_the_text_gives_its_drafter(folder, word):
    assert drafter_of(folder, word).name == word


def test_a_word_for_a_trained_drafter_finds_the_one_of_this_target(folder, own_medusa):
    drafter = drafter_of(folder, "medusa")
    stored = mx.load(str(own_medusa))["heads.1.blocks.0.weight"]
    assert drafter.name == "medusa"
    assert drafter.heads.heads[1].blocks[0].weight.tolist() == stored.tolist()


def test_table_and_pool_begin_with_the_table_of_this_target_alone(folder, home, target_name):
    path = home / "drafters" / "table.safetensors"
    save_table(path, target_name)
    for table in (drafter_of(folder, "table"), drafter_of(folder, "pool").drafters[1]):
        probs = table.cursor(3).next_probs()
        assert probs[9] > probs[11] > 0
    save_table(path, "of another target")
    assert drafter_of(folder, "table").cursor(3).next_probs() == {}


def test_the_word_model_finds_the_draft_model_trained_for_this_target(folder, home, target_name):
    save_draft_model(home / "drafters" / "small.safetensors", target_name)
    drafter = drafter_of(folder, "model", lookahead=3)
    assert (drafter.name, drafter.lookahead) == ("model", 3)
    assert drafter.decoder.model.config.model_type == "qwen2"


def test_a_draft_model_that_is_given_drafts_with_a_cache_like_that_of_its_target(folder):
    prepared = prepare(folder, Options(draft_model=folder, max_kv_size=32, keep=2))
    drafter = prepared.engine.drafter
    assert prepared.choice.drafter == drafter.name == "model"
    assert (drafter.decoder.cache.max_size, drafter.decoder.cache.keep) == (32, 2)


# ---- places ----------------------------------------------------------------------------------


def test_a_place_is_what_its_metadata_or_its_files_say(folder, tmp_path):
    medusa = save_drafter(tmp_path / "a.safetensors", "medusa", *medusa_parts())
    small = save_draft_model(tmp_path / "b.safetensors")
    table = save_table(tmp_path / "c.safetensors")
    found = [drafter_of(folder, str(path)).name for path in (medusa, small, table, folder)]
    assert found == ["medusa", "model", "table", "model"]


def test_a_hub_id_of_a_whole_model_is_a_draft_model(folder, monkeypatch):
    monkeypatch.setattr(registry, "find_head", lambda source, _: Source(folder, source))
    monkeypatch.setattr(registry, "load_model", lambda source, **_: load_model(folder))
    assert drafter_of(folder, "some/model").name == "model"


def test_a_folder_that_another_tool_saved_heads_in_is_a_head(folder, tmp_path):
    _, tensors = medusa_parts()
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 2}))
    theirs = {
        name.replace("heads.", "").replace("blocks.0", "0.linear"): array
        for name, array in tensors.items()
    }
    mx.save_safetensors(str(tmp_path / "medusa_lm_head.safetensors"), theirs)
    assert drafter_of(folder, str(tmp_path)).name == "medusa"


def test_a_head_that_drafts_nonsense_is_said_to_once_however_often_it_is_built(folder, tmp_path):
    said = []
    path = save_drafter(tmp_path / "odd.safetensors", "medusa", *nonsense_parts())
    prepared = prepare(folder, Options(str(path)), say=said.append)
    another = prepared.make_drafter()
    assert another is not prepared.engine.drafter
    assert another.name == "medusa"
    (line,) = said
    assert "odd.safetensors fits tiny badly (" in line
    assert "first draft tokens accepted" in line
    with pytest.warns(UserWarning, match="fits tiny badly"):  # where nobody listens
        api.load(folder, drafter=path)


def test_of_two_ways_to_wire_a_head_the_one_that_drafts_better_is_kept(folder, tmp_path):
    """EAGLE-3 layouts that count layers in two ways; a probe tells them apart."""
    rates = {"wrong": 0.01, "right": 0.4}
    engine = prepare(folder, Options("none"), say=lambda line: None).engine
    head = HeadCheckpoint("eagle3", {}, {}, "h", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "probe", lambda engine, drafter, _: Probe(rates[drafter], 9))
        for ways in (["wrong", "right"], ["right", "wrong"]):
            assert ways[heads.best_way("h", head, ways, engine, print)] == "right"


# ---- lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "expected"), [(None, 0.6), (0.25, 0.25)])
def test_an_early_exit_is_as_sure_as_was_asked_for(folder, tmp_path, asked, expected):
    loaded = load_model(folder)
    head = exit_head(loaded.model)
    tensors = dict(tree_flatten(head.parameters()))
    path = save_drafter(tmp_path / "exit.safetensors", "exit", head.config, tensors)
    options = Options(exit_threshold=asked)
    context = engines.make_drafter_context(loaded, options, lambda line: None)
    assert registry.build_drafter(str(path), context).threshold == expected


def test_several_are_one_pool(folder, own_medusa, tmp_path):
    table = save_table(tmp_path / "table.safetensors")
    assert names_in(drafter_of(folder, "suffix, medusa")) == ["suffix", "medusa"]
    assert names_in(drafter_of(folder, f"{table},suffix")) == ["table", "suffix"]
    comma = table.rename(tmp_path / "a,b.safetensors")  # a place may hold a comma
    assert drafter_of(folder, str(comma)).name == "table"


@pytest.mark.parametrize("word", ["none", "pool", "auto"])
def test_what_stands_alone_is_refused_in_a_list(folder, word):
    with pytest.raises(ValueError, match=f"{word}' stands alone"):
        api.load(folder, drafter=f"suffix,{word}")


# ---- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["ngram", "", "suffix,", "missing.safetensors", "/no/such/file"])
def test_what_is_no_drafter_is_refused_before_anything_is_loaded(word):
    with pytest.raises(ValueError, match=r"is not known; choose from none, suffix, .* auto, or"):
        api.load("no model either", drafter=word)


@pytest.mark.parametrize("word", ["medusa", "model"])
def test_a_trained_drafter_that_is_not_here_says_how_to_make_one(folder, word):
    kind = "draft-model" if word == "model" else word
    with pytest.raises(MlxspecError, match=f"mlxspec train {kind}"):
        api.load(folder, drafter=word)


def test_a_draft_model_that_would_not_be_used_is_refused(folder):
    with pytest.raises(ValueError, match="'suffix' uses no draft model"):
        api.load(folder, drafter="suffix", draft_model=folder)


def test_a_table_of_another_tokenizer_is_refused(folder, tmp_path):
    path = save_table(tmp_path / "table.safetensors", tokenizer="another")
    with pytest.raises(VocabularyMismatchError, match="use the table of this target"):
        api.load(folder, drafter=path)


def test_a_draft_model_of_another_tokenizer_is_refused(folder, tmp_path):
    other = save_folder(tmp_path / "other")
    path = other / "tokenizer.json"
    path.write_text(path.read_text().replace('"c": 2', '"z": 2').replace('"c":2', '"z":2'))
    with pytest.raises(VocabularyMismatchError, match="different tokenizers"):
        api.load(folder, draft_model=other)


# ---- another drafter for the same engine ----------------------------------------------------


def test_another_drafter_goes_on_with_the_cache_of_the_target(folder):
    prepared, text, read = prepare(folder, Options("none")), [*PROMPT], []
    engine = prepared.engine
    for drafter in ("suffix", "table", "pool", "none", "suffix,table"):
        prepared = engines.change_drafter(prepared, Options(drafter))
        assert prepared.engine is engine
        assert prepared.choice.drafter == drafter
        events = list(engine.generate(text, GenerationParams(max_tokens=4)))
        prefill = [event for event in events if isinstance(event, PrefillProgress)][-1]
        read.append(prefill.total - prefill.reused)
        text += [*emitted(events), 5]  # the next turn of the user is one token
    assert read[0] == len(PROMPT)
    assert set(read[1:]) == {2}  # the pending last token of the reply, and that turn


def test_a_drafter_that_cannot_be_leaves_the_one_before(folder):
    before = prepare(folder, Options("suffix"))
    with pytest.raises(MlxspecError, match="no trained drafter"):
        engines.change_drafter(before, Options("medusa"))
    with pytest.raises(ValueError, match="is not known"):
        engines.change_drafter(before, Options("oracle"))
    assert before.engine.drafter.name == "suffix"


def test_drafters_that_follow_each_other_share_what_tables_learn(folder, tmp_path):
    options = Options("table", learn=tmp_path / "learn")
    before = prepare(folder, options)
    after = engines.change_drafter(before, replace(options, drafter="pool"))
    assert after.memory is before.memory is not None
    assert engines.change_drafter(after, replace(options, drafter="none")).memory is before.memory


def test_auto_measures_for_a_loaded_engine_as_its_chat_draws_and_leaves_its_rows(folder, trials):
    prepared = prepare(folder, Options("suffix"))
    prepared.engine.target.observe(PROMPT)
    after = engines.change_drafter(prepared, Options("auto"), sampling=SAMPLED)
    assert after.engine.drafter.name == "pool"
    assert SAMPLED in trials["samplings"]
    assert after.engine.target.history == tuple(PROMPT)


# ---- auto ------------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch):
    """Speeds by name of the drafter, in place of measured ones; every trial is noted."""
    speeds = {"none": 10, "pool": 20, "medusa": 30}
    noted, samplings = [], []

    def run(engine, prompt, drafter, **settings):
        noted.append(drafter.name)
        samplings.append(settings.get("sampling"))
        engine.target.reset()  # a real one, too, leaves nothing of the text before
        return trial_of(speeds[drafter.name])

    monkeypatch.setattr(auto, "short_trial", run)
    return {"speeds": speeds, "noted": noted, "samplings": samplings}


def test_auto_takes_the_fastest_of_what_is_here_says_why_and_measures_once(
    folder, own_medusa, trials
):
    said = []
    prepared = prepare(folder, say=said.append)
    assert prepared.engine.drafter.name == prepared.choice.drafter == "medusa"
    assert prepared.choice.speeds == {"none": 10, "pool": 20, "medusa": 30}
    assert prepared.choice.reason == (
        "fastest of 3 on this machine (x the speed in 3 greedy laps: medusa 3.00, pool 2.00, "
        "none 1.00; spread 0%)"
    )
    assert said == ["measuring which drafter is fastest here ..."]
    trials["noted"].clear()
    again = prepare(folder, say=said.append).choice
    assert (trials["noted"], len(said)) == ([], 1)
    assert (again.drafter, again.speeds) == ("medusa", prepared.choice.speeds)
    assert again.reason == f"{prepared.choice.reason}, measured before"


def test_a_damaged_table_stops_only_what_reads_it(folder, home, trials, target_name):
    path = save_table(home / "drafters" / "table.safetensors", target_name)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    said = []
    assert drafter_of(folder, "suffix").name == "suffix"
    assert prepare(folder, say=said.append).choice.drafter == "none"
    assert "the drafter 'pool' is skipped" in said[1]
    with pytest.raises(MlxspecError, match="damaged"):
        drafter_of(folder, "pool")


@pytest.mark.parametrize("change", ["drafter", "cache", "limits", "machine", "weights"])
def test_auto_measures_anew_when_something_it_depends_on_has_changed(
    folder, own_medusa, trials, change, monkeypatch, target_name
):
    prepare(folder)
    trials["noted"].clear()
    options = Options()
    if change == "drafter":
        save_drafter(own_medusa, "medusa", *medusa_parts(), target_name, tokens_seen=7)
    elif change == "cache":
        options = Options(max_kv_size=64)
    elif change == "limits":
        options = Options(depth=3)
    elif change == "machine":
        monkeypatch.setattr(auto, "machine_key", lambda: "another")
    else:
        real = api.load_model

        def packed(source, **more):
            loaded = real(source, **more)
            object.__setattr__(loaded, "weights", "4-bit")
            return loaded

        monkeypatch.setattr(api, "load_model", packed)
    prepare(folder, options)
    assert set(trials["noted"]) == {"none", "pool", "medusa"}


@pytest.mark.parametrize("asked", ["auto", "medusa.safetensors"])
def test_trials_leave_an_engine_and_a_chat_as_they_were(folder, own_medusa, asked):
    asked = asked if asked == "auto" else str(own_medusa)
    prepared, plain = prepare(folder, Options(asked)), api.load(folder, drafter="none")
    engine, params = prepared.engine, GenerationParams(max_tokens=12)
    assert len(engine.target) == 0
    first = emitted(engine.generate(PROMPT, params))
    assert first == emitted(plain.generate(PROMPT, params))
    prepared = replace(prepared, choice=replace(prepared.choice, key="here"))
    assert engines.measure_again(prepared, SAMPLED, lambda: False) is not None
    longer = [*PROMPT, *first, 5]
    events = list(engine.generate(longer, params))
    read = next(event for event in events if isinstance(event, PrefillProgress))
    assert read.reused == len(PROMPT) + len(first) - 1
    assert emitted(events) == emitted(plain.generate(longer, params))


def contradict(prepared):
    """Note slow replies until they contradict the choice."""
    while not note_reply(prepared.choice, 0.2, is_sampled=True):
        pass


def test_what_replies_contradict_is_measured_as_they_were_drawn(folder, own_medusa, trials):
    prepared = prepare(folder)
    contradict(prepared)
    trials["speeds"]["medusa"] = 15
    trials["samplings"].clear()
    assert engines.measure_again(prepared, SAMPLED, lambda: False).drafter == "pool"
    assert all(sampling in (None, SAMPLED) for sampling in trials["samplings"])
    assert SAMPLED in trials["samplings"]
    trials["noted"].clear()
    assert engines.change_drafter(prepared, Options()).choice.drafter == "pool"
    assert not trials["noted"]


def test_a_measurement_that_was_stopped_decides_nothing(folder, own_medusa, trials):
    prepared = prepare(folder)
    contradict(prepared)
    trials["noted"].clear()
    assert engines.measure_again(prepared, SAMPLED, lambda: len(trials["noted"]) > 4) is None
    assert len(trials["noted"]) <= 6
    assert note_reply(prepared.choice, 0.2, is_sampled=True)


def test_with_an_eagle3_head_its_pool_is_measured_too():
    assert candidates({}) == ["none", "pool"]
    found = candidates({"eagle3": None, "draft-model": None, "table": None})
    assert found == ["none", "pool", "model", "eagle3", "suffix,table,eagle3"]
