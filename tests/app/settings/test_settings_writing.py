"""Changing the settings file: what was asked for and nothing else."""

import os
import re
import tomllib

import pytest

from mlxspec_app.settings.file import (
    Settings,
    SettingsError,
    change_settings,
    read_settings,
    value_of,
    with_value,
)
from mlxspec_app.settings.rules import rules
from tests.support.settings_files import EVERYTHING, FULL, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "settings.toml"


def test_what_was_changed_is_read_back(path):
    plain = {name: getattr(EVERYTHING, name) for name in rules() if "." not in name}
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


def test_a_place_that_is_no_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        change_settings(tmp_path / "file" / "settings.toml", {"ink": "off"})


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


def test_a_closed_choice_can_be_listed():
    assert rules()["theme"].choices[:2] == ("mint", "day")
    assert rules()["context_full"].choices == ("ask", "drop", "rotate", "new")


@pytest.mark.parametrize("name", ["sampling.top_k", "keys.chat.stop"])
def test_a_setting_that_is_spelled_in_two_ways_is_changed_for_good(path, name):
    value = {"sampling.top_k": 3, "keys.chat.stop": "f9"}[name]
    write(path, f'"{name}" = "spelled with its table"\n{FULL}')
    change_settings(path, {name: value})
    assert value_of(read_settings(path).settings, name) == value
    change_settings(path, {name: None})
    assert value_of(read_settings(path).settings, name) == value_of(Settings(), name)
