"""The program speaks in the words that people use."""

import re

from tests.house.sources import sources, text_of
from tests.house.strings import Said, strings
from tests.support.paths import ROOT

NOT_SAID = {
    r"differently": "edit",
    r"begin (an empty|a new) (chat|one)|starts? anew": "start a new chat",
    r"go(es)? on with": "continue, resume",
    r"(chat|message|round|phase|version) before (this|it)\b": "the previous one",
    r"\bthe (hit|message|round|phase|version) (before|after|above|below)\b": "previous, next",
    r"left out, ": "defaults to",
    r"\ball the same": "anyway",
    r"\bfor good\b|\bfor now; ": "in this session; keeps",
    r"look for words": "search",
    r"something else": "rename",
    r"any more\b": "no longer",
    r"is there already|are there already": "already exists",
    r"\bmend\b": "fix",
    r"(?<!--)\bfetch(es|ed|ing)?\b": "download",
    r"\bfilm\b|moving picture": "screencast, animated picture",
    r"brings? (it|them|him) back": "restores",
    r"(?<!there) is no (model|folder|file|list|text|arm|corpus|table|report|page)\b": "is not",
    r"\bspec(ulation)? (off|costs)": "guessing",
    r"tok/s": "tokens/s",
    r"have .* back\b": "restore",
    r"\bbroke off\b": "was cut off",
    r"\bblocks? of code\b": "code block",
    r"\bsaid in this chat\b": "has messages",
    r"\b(main|assistant) model\b|\bhit rate\b|\bspeculator\b": "see docs/glossary.md",
}
"""Patterns that a native speaker or a newcomer would stumble over, and what we say."""


OLD = {
    r"\bwhoever\b|\bhas a say\b|\bwho comes late\b": "name the actor",
    r"\bwhatever drafts\b": "for every drafter",
    r"\bso (many|often) (tokens|rows|events|processes|columns|replies)\b": "this many",
    r"\bat the begin\b": "at the start",
    r"\bhold for these alone\b": "are valid only for this setup",
    r"\bwere not told of\b": "is not supported with",
    r"\bis a decay\b": "must be between",
    r"\b(Heard|Audience|Doorbell|Abilities|SeparateDecoders|Seats)\b": "see docs/glossary.md",
}
"""Words that the code and the pages once had, and what they say now."""


def test_old_words_stand_nowhere():
    any_of_them = re.compile("|".join(OLD), re.IGNORECASE)
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    paths = [*pages, *ROOT.glob("docs/**/*.md"), *sources("mlxspec", "app").values()]
    assert len(paths) > 100
    found = {path: old[0] for path in paths if (old := any_of_them.search(text_of(path)))}
    assert found == {}


def test_the_program_says_what_people_say():
    any_of_them = re.compile("|".join(NOT_SAID), re.IGNORECASE)
    assert [said for said in strings() if any_of_them.search(said.text)] == []


def test_words_of_every_kind_are_found():
    path = "app/mlxspec_app/commands.py"
    said = strings()
    assert Said(path, "", "start a new chat") in said  # an argument of a table
    assert Said("app/mlxspec_app/settings/keys/tables.py", "", "Help") in said  # a key of one word
    assert any("tokens/s" in each.text and "{…}" in each.text for each in said)  # with a value
    assert not any("height: auto" in each.text for each in said)  # a style sheet
    assert not any(each.text.startswith("Return ") for each in said)  # a docstring
