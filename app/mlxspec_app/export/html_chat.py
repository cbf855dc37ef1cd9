"""The conversation as HTML: a span for each round, and inside it a span for each token.

The span of a round has its number among all rounds of the recording; the span of a token has its
index in the round. With these the scripts find both in the embedded trace. All text is made safe
first, because it comes from a model.
"""

from collections.abc import Sequence
from html import escape

from mlxspec_app.conversation.figures import plain_line, reply_figures
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.views import INKS
from mlxspec_app.export.html_stats import round_table, statistics
from mlxspec_app.export.recording import Written, written_by_round
from mlxspec_app.text.safe_text import safe_line, safe_text

_ROLES = {"user": "You", "system": "System"}


def chat(messages: Sequence[Message]) -> str:
    """Return the messages as articles."""
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
    return (
        f'<article class="reply" data-reply="{number}"><h2>{escape(name)}{drafter}</h2>\n'
        f'<div class="text tokens" dir="auto">{rounds}</div>\n{_ending(reply)}{_figures(reply)}'
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
    styles = ((ink.name, ink.style_of(span)) for ink in INKS)
    looks = " ".join(f"{name}-{style}" for name, style in styles if style != "plain")
    text = safe_text(span.text)
    word = text.lstrip(" ") or text
    gap = text[: len(text) - len(word)]  # outside the span: spaces are not underlined
    return (
        f'{gap}<span class="{f"token {looks}".strip()}" data-place="{index}">{escape(word)}</span>'
    )


def _ending(reply: Reply) -> str:
    if not reply.error:
        return ""
    return f'<p class="broken">✗ the reply was cut off: {escape(safe_line(reply.error))}</p>\n'


def _figures(reply: Reply) -> str:
    if not reply.rounds:
        return ""
    line = " · ".join(part.text for part in reply_figures(reply))
    against = ""
    if reply.plain is not None:
        against = f"<p>{plain_line(reply.plain)}: {reply.plain.tps:.1f} tokens/s</p>\n"
    return (
        f'<details class="figures"><summary>{escape(line)}</summary>\n{against}'
        f"{statistics(reply.stats, 'This reply')}{round_table(reply)}</details>"
    )
