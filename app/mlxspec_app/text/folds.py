"""Long pastes as one line: `[Pasted 212 lines]` stands for them until the message is sent."""

import re
from dataclasses import dataclass, field

_MOST_LINES = 50


@dataclass
class Folds:
    """What was folded, by the line that stands for it."""

    _texts: dict[str, str] = field(default_factory=dict)

    def fold(self, text: str) -> str:
        """Return a line that stands for a long text; a short one is returned as it is."""
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
        """Return the text with everything in full."""
        signs = "|".join(re.escape(sign) for sign in self._texts)
        # in one pass: what was pasted may hold such a line itself
        return re.sub(signs, lambda found: self._texts[found[0]], text) if signs else text
