"""Reading the settings file: what it may say, and what wrong values cost."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import settings as configure
from hypothesis import strategies as st

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_app.settings.file import Settings, read_settings, value_of
from mlxspec_app.settings.rules import rules
from tests.support.settings_files import EVERYTHING, FULL, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "settings.toml"


def read(path, text):
    write(path, text)
    return read_settings(path)


def test_without_a_file_everything_has_its_default(path):
    assert read_settings(path) == read(path, "")
    assert read_settings(path).settings == Settings()
    assert read_settings(path).notices == ()


def test_a_full_file_says_everything(path):
    found = read(path, FULL)
    assert found.settings == EVERYTHING
    assert found.notices == ()


def test_every_setting_has_a_rule_and_its_default_keeps_it():
    known = rules()
    plain = {f.name for f in fields(Settings)} - {"sampling", "keys"}
    sampling = {f"sampling.{name}" for name in EVERYTHING.sampling}
    assert set(known) == plain | sampling
    defaults = {name: value_of(Settings(), name) for name in known if name != "theme"}
    assert {name: known[name].read(value) for name, value in defaults.items()} == defaults


def test_the_defaults_of_sampling_are_those_of_the_library_but_for_what_a_chat_draws_with():
    for_scripts = {"logit_bias", "min_tokens_to_keep", "filter_order"}
    for_scripts |= {"xtc_probability", "xtc_threshold", "xtc_special_tokens"}
    law = {
        f.name: getattr(SamplingParams(), f.name)
        for f in fields(SamplingParams)
        if f.name not in for_scripts
    }
    ours = {name: value_of(Settings(), f"sampling.{name}") for name in EVERYTHING.sampling}
    assert ours.pop("max_tokens") == GenerationParams().max_tokens
    assert ours.pop("chat_template_args") == ""
    assert ours.pop("stop_repeats") is True  # a chat ends a reply that repeats itself
    assert law | {"temperature": 0.7, "top_p": 0.9} == ours


@pytest.mark.parametrize(
    ("line", "notice"),
    [
        ('theme = "pink"', "theme is 'pink'; allowed is one of mint, day, dusk, "),
        ("theme = 3", "theme is 3; allowed is one of mint, day"),
        ('ink = "red"', "ink is 'red'; allowed is one of provenance, "),
        ("frame_rate = 61", "frame_rate is 61; allowed is a whole number from 1 to 60, or 0"),
        ("frame_rate = 30.0", "frame_rate is 30.0; allowed is a whole number"),
        ("frame_rate = true", "frame_rate is True; allowed is a whole number"),
        ("reduced_motion = 1", "reduced_motion is 1; allowed is true or false"),
        ('context_full = "stop"', "allowed is one of ask, drop, rotate, new"),
        ('drafter = ""', "allowed is the name of a drafter"),
        ("model = []", "model is []; allowed is a folder, a GGUF file or a hub id"),
        ("sampling.temperature = -0.1", "allowed is 0 or more; below 1e-05 it counts as 0"),
        ("sampling.temperature = nan", "sampling.temperature is nan"),
        ("sampling.temperature = inf", "sampling.temperature is inf"),
        (f"sampling.temperature = {10**400}", "sampling.temperature is 1000"),
        ("sampling.top_p = -1", "allowed is at least 0 and at most 1"),
        ("sampling.top_k = -2", "allowed is a whole number, 1 or more, or 0 or -1 for all"),
        ("sampling.min_p = 1.5", "allowed is at least 0 and at most 1"),
        ("sampling.repetition_penalty = 0", "allowed is finite and more than 0, 1 for none"),
        ("sampling.presence_penalty = inf", "allowed is finite, 0 for none"),
        ("sampling.max_tokens = 0", "allowed is a whole number above 0"),
        ('keys."chat.stop" = ""', "keys.chat.stop is ''; allowed is a key such as"),
        ('keys."chat.stop" = "a, b"', "or several separated by commas without spaces"),
        ("frame_rate = 1979-05-27", "frame_rate is datetime.date"),
    ],
)
def test_a_wrong_value_costs_that_setting_alone(path, line, notice):
    found = read(path, f'model = "kept"\n{line}\n'.replace('model = "kept"\nmodel', "model"))
    assert len(found.notices) == 1
    assert notice in found.notices[0]
    assert found.notices[0].startswith("settings.toml: ")
    kept = "" if line.startswith("model") else "kept"
    assert found.settings == Settings(model=kept)


def test_what_is_not_known_is_reported_and_costs_nothing(path):
    found = read(path, 'colour = "red"\nink = "off"\nsampling.heat = 1\n')
    assert found.settings == Settings(ink="off")
    assert found.notices == tuple(
        f"settings.toml: {name} is not a setting of this version"
        for name in ("colour", "sampling.heat")
    )


def test_a_table_in_place_of_a_value_is_not_known(path):
    assert "ink.name is not a setting" in read(path, '[ink]\nname = "off"').notices[0]
    assert "sampling is not a setting" in read(path, "sampling = 3").notices[0]


@pytest.mark.parametrize("text", ["ink = ", "ink = off", "= 3", "[sampling", "a = " + "[" * 5_000])
def test_what_is_not_toml_is_said_and_defaults_are_used(path, text):
    found = read(path, text)
    assert found.settings == Settings()
    assert "is not TOML" in found.notices[0]


def test_a_file_that_cannot_be_read_is_said(path):
    path.mkdir(parents=True)
    assert "cannot be read" in read_settings(path).notices[0]
    path.rmdir()
    path.write_bytes(b"\xff\xfe")
    assert "is not TOML" in read_settings(path).notices[0]


def is_allowed(name, value):
    try:
        rules()[name].read(value)
    except ValueError:
        return False
    return True


@configure(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(sorted(rules())),
        st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    )
)
def test_any_values_give_settings_and_a_notice_for_each_wrong_one(tmp_path_factory, values):
    import tomlkit

    path = tmp_path_factory.mktemp("settings") / "settings.toml"
    path.write_text(tomlkit.dumps(values), encoding="utf-8")
    found = read_settings(path)
    wrong = [name for name, value in values.items() if not is_allowed(name, value)]
    assert len(found.notices) == len(wrong)
