"""Lines of code with the tones of their syntax, each lexed once from the state after the last one.

The lexers of Pygments keep their state in a stack, which is passed from line to line. So the cost
of a line does not depend on the lines before it, and a string over many lines is still a string in
the last one. Without such a lexer the code stays plain.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlxspec_app.text.rendering.pieces import Piece, Tone

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_LONGEST = 1000  # characters; longer lines stay plain, as each update would lex them again
State = tuple[str, ...]
"""The stack of a lexer between two lines."""
ROOT: State = ("root",)
_TONES = (
    ("Token.Comment", Tone.QUIET | Tone.ITALIC),
    ("Token.Keyword", Tone.LOUD),
    ("Token.Operator.Word", Tone.LOUD),
    ("Token.Name.Function", Tone.LOUD),
    ("Token.Name.Class", Tone.LOUD),
    ("Token.Name.Tag", Tone.LOUD),
    ("Token.Name.Decorator", Tone.QUIET),
    ("Token.Literal.String", Tone.ITALIC),
    ("Token.Operator", Tone.QUIET),
    ("Token.Punctuation", Tone.QUIET),
)


def lex_line(
    language: str, text: str, line: int, start: int, state: State = ROOT
) -> tuple[list[Piece], State]:
    """Return the pieces of a line of code and the state after it.

    `language` is the text after the opening fence; "" is plain text. `text` is the line without its
    line break and without its indentation in the source; it starts at index `start` of the logical
    line `line`. `state` is the state after the line before.
    """
    lexer = _lexer(language)
    if lexer is None or len(text) > _LONGEST:
        return ([Piece(text, line, start, Tone.CODE)] if text else []), state
    stack = list(state)
    pieces = [
        Piece(part[: len(text) - at], line, start + at, Tone.CODE | tone)
        for at, tone, part in _tokens(lexer, text + "\n", stack)
        if at < len(text)
    ]
    return pieces, tuple(stack)


@lru_cache(maxsize=16)
def _lexer(language: str) -> "Lexer | None":
    if not language.strip():
        return None
    from pygments.lexer import RegexLexer  # late: only code needs it
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language.split(maxsplit=1)[0].lower())
    except ClassNotFound:
        return None
    return lexer if isinstance(lexer, RegexLexer) else None


def _tokens(lexer: "Lexer", text: str, stack: list[str]) -> Iterator[tuple[int, Tone, str]]:
    """Yield (start, tone, characters) of adjacent tokens with one tone; change `stack` in place."""
    from pygments.lexer import ExtendedRegexLexer, LexerContext

    context = LexerContext(text, 0, stack)
    lex: Any = ExtendedRegexLexer.get_tokens_unprocessed  # reads nothing but the lexer's tables
    at, last, tone = 0, 0, Tone.PLAIN
    for start, kind, part in lex(lexer, context=context):
        found = _tone(str(kind))
        if found != tone and start > at:
            yield at, tone, text[at:start]
            at = start
        tone, last = found, start + len(part)
    if last > at:
        yield at, tone, text[at:last]
    stack[:] = context.stack


@lru_cache(maxsize=256)
def _tone(kind: str) -> Tone:
    return next((tone for prefix, tone in _TONES if kind.startswith(prefix)), Tone.PLAIN)
