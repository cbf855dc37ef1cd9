"""The exact text of the conversation in Markdown, with or without figures below each reply.

The text is unchanged, except that visible signs replace control characters, so a terminal that
prints the file does not execute them. An open code fence of a reply that was cut off is closed
after it, or what follows would be part of the code. Names come from the recording too, so they are
escaped: they stay on one line and are no markup in Markdown or HTML.
"""

import re
from collections.abc import Iterator

from mlxspec_app.conversation.figures import seconds, seed_words, speed_words
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.export.filing import encoded
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.markdown import closed
from mlxspec_app.text.safe_text import safe_line, safe_text

_MARKUP = re.compile(r"([\\`*\[\]<>|&])")
_ROLES = {"user": "You", "system": "System"}


def render(recording: Recording, *, has_figures: bool = True) -> str:
    """Return the conversation as Markdown, with a table of figures below each reply."""
    parts = [p for message in recording.messages for p in _message(message, has_figures)]
    return "\n\n".join(parts) + "\n"


def bare(recording: Recording) -> str:
    """Return the conversation as Markdown without figures."""
    return render(recording, has_figures=False)


def _message(message: Message, has_figures: bool) -> Iterator[str]:
    if not isinstance(message, Reply):
        yield f"## {_ROLES.get(message.role) or _name(message.role)}"
        yield closed(_text(message.text))
        return
    yield f"## {_name(message.started.target) if message.started is not None else 'Assistant'}"
    yield closed(_text(message.text))
    if message.error:
        yield f"*The reply was cut off: {_name(' '.join(message.error.split()))}*"
    if has_figures:
        yield _table(message)


def _table(reply: Reply) -> str:
    stats = reply.stats
    drafter = reply.started.drafter if reply.started is not None else ""
    rows = [
        ("drafter", _name(drafter) or "unknown"),
        ("tokens", f"{stats.generated_tokens} in {stats.target_forwards} target forwards"),
        *([("kept", f"{stats.kept_tokens} tokens of an earlier reply")] if reply.kept else []),
        (
            "speed",
            f"{stats.generation_tps:.1f} tokens/s, first token after {seconds(stats.ttft_s)}",
        ),
        ("mean acceptance length", f"{stats.mean_acceptance_length:.2f} (1 + accepted / rounds)"),
        ("acceptance rate", f"{stats.acceptance_rate:.0%} (accepted / drafted depth)"),
    ]
    if gain := speed_words(reply):
        rows.append(("speed-up", gain))
    if reply.started is not None:
        words = ", ".join(filter(None, (_name(reply.started.lossless), seed_words(reply))))
        rows.append(("lossless", words))
    lines = ["| figure | value |", "| --- | --- |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows])


def _text(text: str) -> str:
    """Return the text with control characters as signs; tabs and line breaks stay.

    A lone surrogate becomes an escape, as in every export.
    """
    text = encoded(text).decode()
    return "\t".join(safe_text(part) for part in text.split("\t"))


def _name(text: str) -> str:
    """Return a name on one line with every sign of Markdown escaped."""
    return _MARKUP.sub(r"\\\1", safe_line(text))
