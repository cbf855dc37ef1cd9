"""Makes text from a model or a file safe to draw.

Visible signs replace all characters that move the cursor, change colours, reverse the direction of
text or hide text: Unicode control pictures for ASCII controls, U+FFFD for the others. A tab becomes
spaces. A copy to the clipboard uses the original text.
"""

import re

TAB = "    "
_REPLACEMENT = "\ufffd"
_LABEL_LENGTH = 24
_PARTS = re.compile("\ufffd+")

_HARMFUL = (
    *range(0x7F, 0xA0),  # DEL and the C1 controls, among them a one-character CSI
    0xAD,  # soft hyphen: terminals disagree about its width
    0x61C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),  # line separators and bidirectional overrides
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),  # lone surrogates cannot be written to a terminal
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tags: invisible text
)
_TABLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_TABLE |= dict.fromkeys(_HARMFUL, _REPLACEMENT)
_TABLE |= {0x7F: "\u2421", ord("\t"): TAB}


def safe_text(text: str) -> str:
    """Return the text with visible signs for harmful characters; line breaks stay."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def safe_line(text: str) -> str:
    """Return the text on one line: visible signs for harmful characters, spaces for breaks."""
    return " ".join(safe_text(text).split("\n"))


def token_label(text: str) -> str:
    """Return a short label for a token in a table or a tree: no space around it, never empty.

    A token of white space is labelled with a sign for each of its characters, at most four.
    """
    text = _PARTS.sub("…", text)  # a token of bytes: a part of a character
    if not text:
        return "…"
    if not text.strip(" \n\t"):
        return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")[:4]
    return safe_line(text.strip(" ").replace("\n", "↵"))[:_LABEL_LENGTH]
