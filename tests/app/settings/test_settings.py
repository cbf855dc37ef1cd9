"""The settings file: what it may say, what wrong values cost, and what a change writes."""

import os
import re
import tomllib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import settings as configure
from hypothesis import strategies as st

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_app.settings.file import (
    Settings,
    SettingsError,
    SettingsRead,
    change_settings,
    read_settings,
    value_of,
    with_value,
)
from mlxspec_app.settings.rules import RULES
from mlxspec_app.themes import THEMES
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


def test_every_setting_has_a_rule_and_its_default_keeps_it():
    known = RULES
    plain = {f.name for f in fields(Settings)} - {"sampling", "keys"}
    sampling = {f"sampling.{name}" for name in EVERYTHING.sampling}
    assert set(known) == plain | sampling
    defaults = {name: value_of(Settings(), name) for name in known if name != "theme"}
    assert {name: known[name].read(value) for name, value in defaults.items()} == defaults


def test_the_themes_are_those_that_there_are():
    assert RULES["theme"].choices == tuple(theme.name for theme in THEMES)


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
    assert ours.pop("exact") is False
    assert ours.pop("think_tokens") == -1
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
        ("sampling.temperature = -0.1", "allowed is from 0 to 2, as more is noise"),
        ("sampling.temperature = nan", "sampling.temperature is nan"),
        ("sampling.temperature = inf", "sampling.temperature is inf"),
        (f"sampling.temperature = {10**400}", "sampling.temperature is 1000"),
        ("sampling.top_p = -1", "allowed is at least 0 and at most 1"),
        ("sampling.top_k = -2", "allowed is a whole number, 1 or more, or 0 or -1 for all"),
        ("sampling.min_p = 1.5", "allowed is at least 0 and at most 1"),
        ("sampling.repetition_penalty = 0", "allowed is more than 0, at most 2; 1 for none"),
        ("sampling.presence_penalty = inf", "allowed is from -2 to 2, 0 for none"),
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


@pytest.mark.parametrize(
    ("text", "settings", "names"),
    [
        (FULL, EVERYTHING, []),
        ('colour = "red"\nink = "off"', Settings(ink="off"), ["colour"]),
        ("sampling.heat = 1", Settings(), ["sampling.heat"]),
        ('[ink]\nname = "off"', Settings(), ["ink.name"]),
        ("sampling = 3", Settings(), ["sampling"]),
    ],
)
def test_what_is_known_is_read_and_the_rest_is_reported(path, text, settings, names):
    unknown = tuple(f"settings.toml: {name} is not a setting of this version" for name in names)
    assert read(path, text) == SettingsRead(settings, unknown)


@pytest.mark.parametrize("text", ["ink = ", "ink = off", "= 3", "[sampling", "a = " + "[" * 5_000])
def test_what_is_not_toml_is_said_and_defaults_are_used(path, text):
    found = read(path, text)
    assert found.settings == Settings()
    assert "is not TOML" in found.notices[0]


@pytest.mark.parametrize(("old", "view"), [("calm", "calm"), ("colours", "calm"), ("xray", "xray")])
def test_the_views_of_older_files_are_known(path, old, view):
    assert read(path, f'view = "{old}"') == SettingsRead(Settings(view=view))


def test_a_file_that_cannot_be_read_is_said(path):
    path.mkdir(parents=True)
    assert "cannot be read" in read_settings(path).notices[0]
    path.rmdir()
    path.write_bytes(b"\xff\xfe")
    assert "is not TOML" in read_settings(path).notices[0]


def is_allowed(name, value):
    try:
        RULES[name].read(value)
    except ValueError:
        return False
    return True


@configure(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(sorted(RULES)),
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


# ---- single values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("ink", "off"), ("sampling.top_p", 0.5), ("keys.chat.stop", "f9"), ("frame_rate", 20)],
)
def test_a_value_that_was_set_is_found_and_can_be_taken_back(name, value):
    changed = with_value(Settings(), name, value)
    assert changed != Settings()
    assert value_of(changed, name) == value
    assert with_value(changed, name, None) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sampling.top_p", " 0.5 ", 0.5),
        ("sampling.temperature", "1", 1.0),
        ("frame_rate", "20", 20),
        ("reduced_motion", "True", True),
        ("model", " ~/smol ", "~/smol"),
    ],
)
def test_a_typed_value_is_read_as_its_kind(name, text, value):
    read = RULES[name].read_typed(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("frame_rate", "2.5"),
        ("frame_rate", "1e9"),
        ("sampling.top_p", "half"),
        ("sampling.temperature", "nan"),
        ("reduced_motion", "yes"),
        ("drafter", "  "),
    ],
)
def test_a_typed_value_that_is_not_allowed_is_refused_in_words(name, text):
    with pytest.raises(ValueError, match="; allowed is "):
        RULES[name].read_typed(text)


# ---- changes -------------------------------------------------------------------------------


def test_what_was_changed_is_read_back(path):
    plain = {name: getattr(EVERYTHING, name) for name in RULES if "." not in name}
    sampling = {f"sampling.{name}": value for name, value in EVERYTHING.sampling.items()}
    keys = {f"keys.{name}": value for name, value in EVERYTHING.keys.items()}
    change_settings(path, {**plain, **sampling, **keys})
    assert read_settings(path).settings == EVERYTHING
    assert read_settings(path).notices == ()


def test_a_change_leaves_every_other_line_alone(path):
    write(path, FULL + "\n[of.another.version]\nthing = [1,  2] # odd\n")
    before = path.read_text().splitlines()
    changes = {
        "theme": "mint",
        "sampling.top_p": 0.5,
        "keys.chat.stop": "f8",
        "keys.chat.new": "f7",
    }
    change_settings(path, changes)
    after = path.read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        ('theme = "day"  # bright room', 'theme = "mint"  # bright room'),
        ("top_p = 0.9", "top_p = 0.5"),
        ('"chat.stop" = "ctrl+g"', '"chat.stop" = "f8"'),
        ('chat.new = "f9,ctrl+b"  # either', 'chat.new = "f7"  # either'),
    ]


def test_a_new_setting_is_added_where_it_is_read(path):
    write(path, "# mine\n[keys]\nchat.stop = 'f9'\n")
    change_settings(path, {"ink": "off", "sampling.top_k": 3, "keys.chat.new": "f8"})
    found = read_settings(path)
    assert found.settings == Settings(
        ink="off", sampling={"top_k": 3}, keys={"chat.stop": "f9", "chat.new": "f8"}
    )
    assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize("name", ["ink", "sampling.top_p", "keys.chat.stop", "keys.chat.new"])
def test_a_setting_that_is_taken_out_has_its_default(path, name):
    write(path, FULL)
    change_settings(path, {name: None})
    left = tomllib.loads(path.read_text())
    assert not re.search(rf"[.']{name.split('.')[-1]}': ", str(left))
    change_settings(path, {name: None})  # taking out what is not there is no error
    assert tomllib.loads(path.read_text()) == left


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ink": "red"}, "ink is 'red'; allowed is one of provenance"),
        ({"theme": "pink"}, "theme is 'pink'; allowed is one of mint"),
        ({"colour": "red"}, "colour is not a setting; known are theme, ink, "),
        ({"keys.chat.stop": "a b"}, "keys.chat.stop is 'a b'"),
        ({"ink": "off", "frame_rate": 99}, "frame_rate is 99"),
    ],
)
def test_a_change_that_is_not_allowed_changes_nothing(path, changes, words):
    write(path, FULL)
    with pytest.raises(SettingsError, match=words):
        change_settings(path, changes)
    assert path.read_text() == FULL
    name, value = list(changes.items())[-1]
    with pytest.raises(ValueError, match=words):
        with_value(Settings(), name, value)


def test_a_file_that_is_not_toml_is_left_to_its_owner(path):
    write(path, "ink = off  # oops")
    with pytest.raises(SettingsError, match=r"is not TOML, so nothing was changed.*Fix or remove"):
        change_settings(path, {"ink": "off"})
    assert path.read_text() == "ink = off  # oops"


def test_a_failed_write_leaves_the_file_as_it_was(path, monkeypatch):
    write(path, FULL)

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(SettingsError, match="cannot be written: No space left on device"):
        change_settings(path, {"ink": "off"})
    assert path.read_text() == FULL
    assert list(path.parent.iterdir()) == [path]


def test_a_linked_file_stays_a_link_and_permissions_stay(path, tmp_path):
    target = tmp_path / "dotfiles.toml"
    write(target, FULL)
    target.chmod(0o640)
    path.parent.mkdir()
    path.symlink_to(target)
    change_settings(path, {"ink": "provenance"})
    assert path.is_symlink()
    assert 'ink = "provenance"' in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["sampling.top_k", "keys.chat.stop"])
def test_a_setting_that_is_spelled_in_two_ways_is_changed_for_good(path, name):
    value = {"sampling.top_k": 3, "keys.chat.stop": "f9"}[name]
    write(path, f'"{name}" = "spelled with its table"\n{FULL}')
    change_settings(path, {name: value})
    assert value_of(read_settings(path).settings, name) == value
    change_settings(path, {name: None})
    assert value_of(read_settings(path).settings, name) == value_of(Settings(), name)
