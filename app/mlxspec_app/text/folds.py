"""Long texts as one line: `[Pasted 212 lines]` stands for the text until the user sends it.

In the transcript `[notes.txt, 240 lines]` stands for a file; the model reads all of it.
"""

import re
from dataclasses import dataclass, field

_MOST_LINES = 50
_ENDS = 3  # lines of a long message that stay at its beginning, and at its end
_FILE = re.compile(r"(?<=\n\n)(\S+):\n(`{3,})\n(.*?)\n\2(?=\n\n|\Z)", re.DOTALL)


@dataclass
class Folds:
    """Long texts, by the line that stands for each."""

    _texts: dict[str, str] = field(default_factory=dict)

    def fold(self, text: str) -> str:
        """Return a line that stands for a long text; return a short text as it is."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        count = text.count("\n") + 1
        if count <= _MOST_LINES:
            return text
        sign, number = f"[Pasted {count} lines]", 1
        while self._texts.get(sign, text) != text:
            number += 1
            sign = f"[Pasted {count} lines, {number}]"
        self._texts[sign] = text
        return sign

    def unfold(self, text: str) -> str:
        """Return the text with each such line replaced by the text for which it stands."""
        signs = "|".join(re.escape(sign) for sign in self._texts)
        # In one pass: a pasted text may itself contain such a line, which must stay.
        return re.sub(signs, lambda found: self._texts[found[0]], text) if signs else text


def folded(text: str) -> str:
    """Return a message with a line for each file that it names by an @, and for a long middle."""

    def line(found: re.Match[str]) -> str:
        count = found[3].count("\n") + 1
        is_named = f"@{found[1]}" in text[: found.start()]
        return (
            f"[{found[1]}, {count} {'line' if count == 1 else 'lines'}]" if is_named else found[0]
        )

    lines = _FILE.sub(line, text).split("\n")
    if len(lines) > _MOST_LINES:
        lines[_ENDS:-_ENDS] = [f"[{len(lines) - 2 * _ENDS} more lines]"]
    return "\n".join(lines)
