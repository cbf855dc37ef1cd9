"""The shareable page: one file that shows, explains and plays a recorded chat, without a network.

The text, the figures and the tables are HTML, so the page works without scripts and for screen
readers. It also contains the trace. The scripts in this folder read the trace to step through
the rounds, to draw the draft trees, to inspect a token, and to save the trace as a file.
"""

import json
from collections.abc import Iterator, Sequence
from html import escape
from string import Template
from typing import get_args

from mlxspec.trace.events import Event
from mlxspec.trace.file import event_to_json
from mlxspec.trace.stats import total
from mlxspec_app.conversation.baseline import counted
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.views import INKS, Ink, StyleName
from mlxspec_app.export.html_chat import chat
from mlxspec_app.export.html_stats import headline, statistics
from mlxspec_app.export.looks import page_part, tints
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.themes.looks import LEGENDS, LOOKS

_MARKUP = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}


def render(recording: Recording) -> str:
    """Return the page."""
    replies = counted(recording.replies)
    stats = total(reply.stats for reply in replies)
    return Template(page_part("page.html")).substitute(
        title=escape(safe_line(recording.title)),
        style=_rules() + page_part("page_frame.css", "page_tree.css", "page.css"),
        ink=INKS[0].name,
        inks="".join(_choice("ink", ink.name) for ink in INKS),
        themes="".join(_choice("theme", name) for name in ("auto", "light", "dark")),
        headline=headline(recording.replies[-1], stats),
        legends="".join(_legend(ink, recording.has_kept) for ink in INKS),
        chat=chat(recording.messages),
        statistics=statistics(stats, _counted_words(recording.replies, replies)),
        trace="\n".join(_embedded(event) for event in recording.events),
        script=page_part("page_tree.js", "page_token.js", "page.js"),
    )


def _counted_words(replies: Sequence[Reply], counted: Sequence[Reply]) -> str:
    """Return the words for the replies that an average includes."""
    others = [reply for reply in replies if reply not in counted]
    kinds = (
        ("loops", any(reply.is_loop for reply in others)),
        ("copies of earlier ones", any(reply.is_copy for reply in others)),
    )
    left_out = " and ".join(words for words, is_among in kinds if is_among)
    return f"All replies except {left_out}" if left_out else "All replies"


def _embedded(event: Event) -> str:
    """Return a line of the trace that cannot end the script element around it."""
    record = json.loads(event_to_json(event), parse_float=_short)
    return json.dumps(record, separators=(",", ":")).translate(_MARKUP)


def _short(digits: str) -> float:
    return float(f"{float(digits):.7g}")


def _choice(group: str, name: str) -> str:
    checked = " checked" if name in (INKS[0].name, "auto") else ""
    return (
        f'<label><input type="radio" name="{group}" id="{group}-{name}" value="{name}"{checked}>'
        f"<span>{name}</span></label>"
    )


def _rules() -> str:
    looks = "\n".join(rule for ink in INKS for rule in _ink_rules(ink))
    return f"{tints()}\n{looks}\n"


def _ink_rules(ink: Ink) -> Iterator[str]:
    """Yield the rules that apply while an ink is chosen."""
    chosen = f"[data-ink={ink.name}]"  # `:has` would match every token again at every step
    yield f"{chosen} .legend.{ink.name}{{display:block}}"
    if not ink.bands:
        yield f"{chosen} .round{{background:none}}"
    for name in get_args(StyleName):
        if name != "plain":
            yield f"{chosen} .{ink.name}-{name}{{{LOOKS[name].css}}}"


def _legend(ink: Ink, has_branch: bool) -> str:
    keys = "".join(
        f'<li><b class="{ink.name}-{style}">{name}</b>{f" {meaning}" if meaning else ""}</li>'
        for style, name, meaning in LEGENDS[ink.name]
        if style != "kept" or has_branch
    )
    return f'<ul class="legend {ink.name}" aria-label="what the colours mean">{keys}</ul>'
