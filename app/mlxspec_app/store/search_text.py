"""Text for the full-text index: preparation of texts, translation of queries, split of snippets.

FTS5 finds words, but scripts such as Chinese have no spaces between words. So each of their
characters stands between zero-width spaces, in the index and in a query, and FTS5 finds a run of
them as a phrase.
"""

import re
from typing import NamedTuple

MARK_START, MARK_END = "\x02", "\x03"
MAX_WORDS = 32  # FTS5 limits the depth of an expression
_FENCE = "\u200b"  # zero-width space: invisible, and no part of any word
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_HARMFUL = re.compile("[\x00\x02\x03\ud800-\udfff]")
_PHRASE_OR_WORD = re.compile(r'"([^"]*)"|([^\s"]+)')


class SnippetPart(NamedTuple):
    """A part of a snippet; `is_match` says whether it matches the query."""

    text: str
    is_match: bool


def spaced(text: str) -> str:
    """Return the text in the form that the index stores."""
    return _UNSPACED.sub(rf"{_FENCE}\g<0>{_FENCE}", _HARMFUL.sub(" ", text))


def match_expression(query: str) -> str:
    """Return a typed query as an expression of FTS5, or "" if it has no word.

    Every word must occur, as a prefix unless punctuation ends it. A phrase in quotation marks must
    occur as it is. Nothing that a user can type is an operator.
    """
    terms = []
    for found in _PHRASE_OR_WORD.finditer(_HARMFUL.sub(" ", query)):
        phrase, word = found.groups()
        term = spaced(phrase or word or "")
        if any(character.isalnum() for character in term):
            is_open = not phrase and term.rstrip(_FENCE)[-1].isalnum()  # C++ is a whole word
            terms.append(f'"{term}"*' if is_open else f'"{term}"')
    return " AND ".join(terms[:MAX_WORDS])


def snippet_parts(marked: str) -> tuple[SnippetPart, ...]:
    """Return the parts of a snippet with marked matches, line breaks as spaces."""
    parts = []
    line = re.sub(r"\s+", " ", marked.replace(_FENCE, ""))
    for number, piece in enumerate(re.split(f"[{MARK_START}{MARK_END}]", line)):
        if piece:
            parts.append(SnippetPart(piece, is_match=number % 2 == 1))
    return tuple(parts)
