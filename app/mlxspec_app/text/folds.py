"""Long pastes as one line: `[Pasted 212 lines]` stands for the text until the user sends it."""

import re
from dataclasses import dataclass, field

_MOST_LINES = 50


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
