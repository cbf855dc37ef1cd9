"""Which of the keys that a user chose can be used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec_app.settings.keys.choices import all_bindings, key_list, usable_keys
from mlxspec_app.settings.keys.tables import CHAT


@pytest.mark.parametrize(
    "chosen",
    [
        {"chat.stop": "ctrl+s", "view.ink": "f12,ctrl+t"},
        {"view.ink": "f3", "view.tree": "f2"},  # two actions change their keys
        {"replay.round": "n"},  # a letter, where nothing is typed
    ],
)
def test_a_free_key_can_be_used(chosen):
    found = usable_keys(chosen)
    assert found.keys == chosen
    assert found.troubles == ()


@pytest.mark.parametrize(
    ("chosen", "trouble"),
    [
        ({"chat.fly": "f9"}, "chat.fly is not the id of an action"),
        ({"chat.stop": "x"}, "chat.stop cannot be x, which the prompt needs"),
        ({"chat.stop": "question_mark"}, "which the prompt needs"),
        ({"chat.new": "f9,enter"}, "chat.new cannot be enter"),
        ({"chat.stop": "f2"}, "f2 is view.ink in the chat already; chat.stop stays on escape"),
        ({"transcript.before": "j"}, "j is transcript.message_after in the chat already"),
        ({"replay.round": "["}, "[ is replay.round_back in the replay already"),
    ],
)
def test_a_choice_that_cannot_be_used_is_told_and_left_out(chosen, trouble):
    found = usable_keys(chosen)
    assert found.keys == {}
    assert len(found.troubles) == 1
    assert trouble in found.troubles[0]


def test_of_two_that_want_one_key_the_first_gets_it_unless_it_was_another_ones():
    assert usable_keys({"chat.stop": "f9", "chat.new": "f9"}).keys == {"chat.stop": "f9"}
    found = usable_keys({"view.tree": "f2", "view.ink": "f4"})
    assert found.keys == {}
    assert len(found.troubles) == 2


@given(
    st.dictionaries(
        st.sampled_from(sorted(all_bindings())), st.sampled_from(["f2", "f3", "f9", "q", "ctrl+r"])
    )
)
def test_what_is_left_never_clashes(chosen):
    keys = usable_keys(chosen).keys
    assert usable_keys(keys).keys == keys
    assert usable_keys(keys).troubles == ()


def test_the_help_page_shows_the_chosen_keys():
    rows = {meaning: key for key, meaning in key_list(CHAT, {"chat.stop": "ctrl+g"})}
    assert rows["stop the reply, or a download"] == "Ctrl+G"
    assert rows["retry the last reply; without a model, load it again"] == "Ctrl+R"
