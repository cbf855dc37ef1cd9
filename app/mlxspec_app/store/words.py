"""Words for the search index: text prepared for it, questions put to it, snippets out of it.

FTS5 finds words, and scripts such as Chinese are written without spaces between them. So each
character of these is fenced off by zero-width spaces, in the index and in a question alike, and
a run of them is found as a phrase.
"""

import re
from dataclasses import dataclass

MARK_START, MARK_END = "\x02", "\x03"
MAX_WORDS = 32  # an expression of FTS5 may not be arbitrarily deep
_FENCE = "\u200b"  # zero-width space: invisible, and no part of any word
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_HARMFUL = re.compile("[\x00\x02\x03\ud800-\udfff]")
_PHRASE_OR_WORD = re.compile(r'"([^"]*)"|([^\s"]+)')


@dataclass(frozen=True)
class SnippetPart:
    """A piece of a snippet.

    Attributes:
        text: Its characters.
        is_match: Whether they are what was looked for.
    """

    text: str
    is_match: bool


def spaced(text: str) -> str:
    """Return the text as the index keeps it."""
    return _UNSPACED.sub(rf"{_FENCE}\g<0>{_FENCE}", _HARMFUL.sub(" ", text))


def match_expression(query: str) -> str:
    """Return what a user typed as an expression of FTS5, or "" if there is no word in it.

    Every word has to occur, as the beginning of a word unless punctuation ends it; what stands
    between quotation marks has to occur as it is. Nothing a user can type is an operator.
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
    """Return the parts of a snippet with marks around its matches, line breaks as spaces."""
    parts = []
    line = re.sub(r"\s+", " ", marked.replace(_FENCE, ""))
    for number, piece in enumerate(re.split(f"[{MARK_START}{MARK_END}]", line)):
        if piece:
            parts.append(SnippetPart(piece, is_match=number % 2 == 1))
    return tuple(parts)
