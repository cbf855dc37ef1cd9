"""Lines of code with the tones of their syntax: each is lexed once, from where the last one ended.

The lexers of Pygments keep their state in a stack; it is handed from line to line. So the cost of a
line does not depend on the lines before it, and a string over many lines is still a string in the
last one. A lexer that has no such stack, or fails, leaves the code plain.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlxspec_app.text.rendering.pieces import Piece, Tone

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_LONGEST = 1000  # characters of a line that is worth lexing at every update
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


class Highlighter:
    """The tones of a block of code in one language, line by line."""

    def __init__(self, language: str) -> None:
        """Take the first word after the opening fence as the language; "" is plain text."""
        self._lexer = _lexer(language.split(maxsplit=1)[0].lower() if language.strip() else "")

    def lex(
        self, text: str, line: int, start: int, state: State = ROOT
    ) -> tuple[list[Piece], State]:
        """Return the pieces of a line of code and the state after it.

        Args:
            text: The line, without its indentation in the source and its line break.
            line: Its logical line in the source.
            start: Index there of its first character.
            state: The state after the line before.
        """
        if self._lexer is None or len(text) > _LONGEST:
            return ([Piece(text, line, start, Tone.CODE)] if text else []), state
        stack = list(state)
        pieces = [
            Piece(part[: len(text) - at], line, start + at, Tone.CODE | tone)
            for at, tone, part in _tokens(self._lexer, text + "\n", stack)
            if at < len(text)
        ]
        return pieces, tuple(stack)


@lru_cache(maxsize=16)
def _lexer(language: str) -> "Lexer | None":
    if not language:
        return None
    from pygments.lexer import RegexLexer  # late: only code needs it
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    return lexer if isinstance(lexer, RegexLexer) else None


def _tokens(lexer: "Lexer", text: str, stack: list[str]) -> Iterator[tuple[int, Tone, str]]:
    """Yield (start, tone, characters) of neighbours with one tone; the stack changes in place."""
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
