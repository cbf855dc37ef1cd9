"""The shareable page: one file that shows, explains and plays a recorded chat, without a network.

The text, the figures and the tables are HTML, so the page works without scripts and for screen
readers. It also contains the trace, which the scripts in this folder read.

The conversation has a span for each round, with its number among all rounds of the recording, and
inside it a span for each token, with its index in the round. With these the scripts find both in
the trace. All text is made safe first, because it comes from a model.
"""

import json
from collections.abc import Iterator, Sequence
from html import escape
from string import Template
from typing import get_args

from mlxspec.trace.events import Event
from mlxspec.trace.file import event_to_json
from mlxspec.trace.stats import total
from mlxspec_app.conversation.figures import RATIO, quiet_figures
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.speeds import counted, plain_tps
from mlxspec_app.conversation.views import CALM_INK, INKS, Ink, StyleName
from mlxspec_app.export.html_stats import headline, round_table, statistics
from mlxspec_app.export.looks import page_part, tints
from mlxspec_app.export.recording import Recording, Written, written_by_round
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.themes.looks import LEGENDS, LOOKS

_INKS = (CALM_INK, *INKS)
_ROLES = {"user": "You", "system": "System"}
_MARKUP = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}


def render(recording: Recording) -> str:
    """Return the page."""
    replies = counted(recording.replies)
    stats = total(reply.stats for reply in replies)
    looks = "\n".join(rule for ink in _INKS for rule in _ink_rules(ink))
    return Template(page_part("page.html")).substitute(
        title=escape(safe_line(recording.title)),
        style=f"{tints()}\n{looks}\n{page_part('page_frame.css', 'page_tree.css', 'page.css')}",
        ink=CALM_INK.name,
        inks="".join(_choice("ink", ink.name) for ink in _INKS),
        themes="".join(_choice("theme", name) for name in ("auto", "light", "dark")),
        headline=headline(recording.replies[-1], stats),
        legends="".join(_legend(ink, recording.has_kept) for ink in _INKS),
        chat=_chat(recording.messages),
        statistics=statistics(stats, _counted_words(recording.replies, replies)),
        trace="\n".join(_embedded(event) for event in recording.events),
        script=page_part("page_tree.js", "page_token.js", "page.js"),
    )


def _counted_words(replies: Sequence[Reply], counted: Sequence[Reply]) -> str:
    """Return the words for the replies that an average includes."""
    others = [reply for reply in replies if reply not in counted]
    left_out = ["loops"] * any(reply.is_loop for reply in others)
    left_out += ["copies of earlier ones"] * any(reply.is_copy for reply in others)
    return f"All replies except {' and '.join(left_out)}" if left_out else "All replies"


def _embedded(event: Event) -> str:
    """Return a line of the trace that cannot end the script element around it."""
    record = json.loads(event_to_json(event), parse_float=lambda n: float(f"{float(n):.7g}"))
    return json.dumps(record, separators=(",", ":")).translate(_MARKUP)


def _choice(group: str, name: str) -> str:
    checked = " checked" if name in (CALM_INK.name, "auto") else ""
    return (
        f'<label><input type="radio" name="{group}" id="{group}-{name}" value="{name}"{checked}>'
        f"<span>{name}</span></label>"
    )


def _ink_rules(ink: Ink) -> Iterator[str]:
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


def _chat(messages: Sequence[Message]) -> str:
    articles: list[str] = []
    num_replies = num_rounds = 0
    for message in messages:
        if isinstance(message, Reply):
            num_replies += 1
            articles.append(_reply(message, num_replies, num_rounds))
            num_rounds += len(message.rounds)
        else:
            articles.append(_user_message(message, num_replies + 1))
    return "\n".join(articles)


def _user_message(message: Message, answered_by: int) -> str:
    role = _ROLES.get(message.role, safe_line(message.role))
    return (
        f'<article class="said" data-reply="{answered_by}"><h2>{escape(role)}</h2>'
        f'<div class="text" dir="auto">{escape(safe_text(message.text))}</div></article>'
    )


def _reply(reply: Reply, number: int, first_round: int) -> str:
    started = reply.started
    name = safe_line(started.target) if started is not None else "Reply"
    drafter = f"<small> ◂ {escape(safe_line(started.drafter))}</small>" if started else ""
    rounds = "".join(
        _round(written, first_round, is_known=written.number <= len(reply.rounds))
        for written in written_by_round(reply)
    )
    broken = ""
    if reply.error:
        error = escape(safe_line(reply.error))
        broken = f'<p class="broken">✗ the reply was cut off: {error}</p>\n'
    return (
        f'<article class="reply" data-reply="{number}"><h2>{escape(name)}{drafter}</h2>\n'
        f'<div class="text tokens" dir="auto">{rounds}</div>\n{broken}{_figures(reply)}'
        "</article>"
    )


def _round(written: Written, first_round: int, *, is_known: bool) -> str:
    tokens = "".join(_token(index, span) for index, span in written.tokens)
    if not written.number:
        return f'<span title="kept from the earlier reply, up to the chosen token">{tokens}</span>'
    number = first_round + written.number - 1
    mark = f' data-round="{number}"' if is_known else ""
    return f'<span class="round band-{"ab"[number % 2]}"{mark}>{tokens}</span>'


def _token(index: int, span: Span) -> str:
    styles = ((ink.name, ink.style_of(span)) for ink in _INKS)
    looks = " ".join(f"{name}-{style}" for name, style in styles if style != "plain")
    text = safe_text(span.text)
    word = text.lstrip(" ") or text
    gap = text[: len(text) - len(word)]  # outside the span: spaces are not underlined
    return (
        f'{gap}<span class="{f"token {looks}".strip()}" data-place="{index}">{escape(word)}</span>'
    )


def _figures(reply: Reply) -> str:
    if not reply.rounds:
        return ""
    words = ((part.text, escape(part.text)) for part in quiet_figures(reply))
    line = " · ".join(f"<b>{safe}</b>" if RATIO in word else safe for word, safe in words)
    against = ""
    if plain := plain_tps(reply):
        against = f"<p>plain decoding at the same time: {plain:.1f} tokens/s</p>\n"
    return (
        f'<details class="figures"><summary>{line}</summary>\n{against}'
        f"{statistics(reply.stats, 'This reply')}{round_table(reply)}</details>"
    )
