"""Pictures of screens as SVG, compared with those in `snapshots/`; the fixture is `pictures`.

A picture is what `export_screenshot` draws in a normal form: one line for each run of text of one
style and for each stretch of background, no fonts from elsewhere, no identifiers that depend on
what else is in the file. So a difference reads well, and the file opens in any browser.
"""

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import textual
from textual.app import App

from tests.support.paths import TESTS

FOLDER = TESTS / "snapshots"
_SVG = "{http://www.w3.org/2000/svg}"
_STYLE = re.compile(r"\.[\w-]+-(r\d+) \{ (.*?);? \}")
_MARKS = {"bold": "-b", "italic": "-i", "underline": "-u", "line-through": "-s"}
_ROW_HEIGHT = 24.4
_MOST_LINES = 12


@dataclass
class Piece:
    """A part of a row: text of one class, or background of one colour."""

    look: str
    x: float
    y: float
    width: float
    text: str = ""

    def joins(self, other: "Piece") -> bool:
        """Whether the other one continues it."""
        is_next = abs(self.x + self.width - other.x) < 0.1
        return is_next and (self.look, self.y) == (other.look, other.y)


def picture(svg: str) -> str:
    """Return the normal form of a screenshot."""
    root = ElementTree.fromstring(svg)
    matrix = root.findall(f"{_SVG}g")[-1]
    found = dict(_STYLE.findall(root.findtext(f"{_SVG}style") or ""))
    names = {look: _name(style) for look, style in found.items()}
    grounds = [
        Piece(r.get("fill"), float(r.get("x")), float(r.get("y")), float(r.get("width")))
        for r in matrix.findall(f"{_SVG}rect")
    ]
    texts = [
        Piece(
            names[t.get("class").rpartition("-")[2]],
            float(t.get("x")),
            float(t.get("y")),
            float(t.get("textLength")),
            t.text.replace("\xa0", " "),
        )
        for t in matrix.iter(f"{_SVG}text")
        if t.text != "\n"
    ]
    left, top, right, bottom = (float(part) for part in root.get("viewBox").split())
    width, height = right - left - 18, bottom - top - 50
    page = _page(grounds, width * round(height / _ROW_HEIGHT), _terminal_background(root))
    styles = {names[look]: style for look, style in found.items()}
    lined = {name for name, style in styles.items() if "text-decoration" in style}
    kept = [piece for piece in _joined(texts) if piece.text.strip() or piece.look in lined]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            ' xml:space="preserve">',
            "<style>",
            "text { font: 20.26px monospace; white-space: pre }",
            "rect { shape-rendering: crispEdges }",
            *(f".{name} {{ {styles[name]} }}" for name in sorted({piece.look for piece in kept})),
            "</style>",
            f'<rect width="100%" height="100%" fill="{page}"/>',
            *(_ground(piece) for piece in _joined(grounds) if piece.look != page),
            *(_text(piece) for piece in kept),
            "</svg>",
            "",
        ]
    )


def _name(style: str) -> str:
    """Return a class name that depends only on the style, not on the rest of the picture."""
    colour = re.search(r"fill: #(\w+)", style)
    assert colour is not None, style
    return "c" + colour[1] + "".join(mark for word, mark in _MARKS.items() if word in style)


def _terminal_background(root: ElementTree.Element) -> str:
    frame = root.find(f"{_SVG}rect")
    assert frame is not None
    return frame.get("fill", "")


def _page(grounds: list[Piece], total: float, terminal: str) -> str:
    """Return the most frequent background: the terminal's own colour covers the rest."""
    widths = Counter({terminal: total - sum(piece.width for piece in grounds)})
    for piece in grounds:
        widths[piece.look] += piece.width
    return widths.most_common(1)[0][0]


def _joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].joins(piece):
            joined[-1].width += piece.width
            joined[-1].text += piece.text
        else:
            joined.append(piece)
    return joined


def _ground(piece: Piece) -> str:
    box = f'x="{piece.x:g}" y="{piece.y:g}" width="{piece.width:g}" height="24.65"'
    return f'<rect fill="{piece.look}" {box}/>'


def _text(piece: Piece) -> str:
    position = f'x="{piece.x:g}" y="{piece.y:g}" textLength="{piece.width:g}"'
    return f'<text class="{piece.look}" {position}>{escape(piece.text)}</text>'


class Pictures:
    """Compares pictures with stored ones, or stores new ones.

    Attributes:
        folder: Folder of the stored pictures, which were reviewed.
        failed: Folder for pictures that differ.
        renews: Whether to store instead of to compare.
    """

    def __init__(self, folder: Path, failed: Path, *, renews: bool) -> None:
        self.folder, self.failed, self.renews = folder, failed, renews
        self.troubles: list[str] = []

    def check(self, name: str, app: App[None]) -> None:
        """Compare the screen with its picture; `tell` reports the differences."""
        self.compare(name, picture(app.export_screenshot()))

    def compare(self, name: str, drawn: str) -> None:
        path = self.folder / f"{name}.svg"
        if self.renews:
            self.folder.mkdir(exist_ok=True)
            path.write_text(drawn, encoding="utf-8")
            return
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        if known == drawn:
            return
        new = self.failed / path.name
        new.write_text(drawn, encoding="utf-8")
        self.troubles.append(_trouble(path, new, known, drawn))

    def tell(self) -> None:
        """Fail if any picture differed since the last call."""
        troubles, self.troubles = self.troubles, []
        assert not troubles, "\n\n".join(
            [
                *troubles,
                "Look at both. If the new one is right: pytest --update-snapshots "
                f"tests/app/test_snapshots.py (this is Textual {textual.__version__})",
            ]
        )


def _trouble(path: Path, new: Path, known: str, drawn: str) -> str:
    if not known:
        return f"{path} does not exist; the screen is now drawn in {new}"
    lines = difflib.unified_diff(known.splitlines(), drawn.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if re.match(r"[-+]<(text|rect)", line)]
    more = len(changed) - _MOST_LINES
    shown = [*changed[:_MOST_LINES], *([f"and {more} lines more"] if more > 0 else [])]
    return "\n".join([f"{path} differs; the screen is now drawn in {new}", *shown])
