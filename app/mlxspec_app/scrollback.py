"""The conversation as plain text, left in the terminal's scrollback when the app has gone.

Roles are marked as the plain chat marks them. The text goes to a terminal, so it is made harmless
like everything that is drawn.
"""

from collections.abc import Iterable

from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.text.safe_text import safe_line, safe_text

_ROLES = {"user": "you"}


def as_plain_text(messages: Iterable[Message]) -> str:
    """Return the messages, each below its role and an empty line between; "" for none."""
    return "\n\n".join(_told(message) for message in messages)


def _told(message: Message) -> str:
    name = _ROLES.get(message.role, message.role)
    lines = [f"{safe_line(name)}> {safe_text(message.text).rstrip()}".rstrip()]
    if isinstance(message, Reply):
        lines += [f"[{note}]" for note in _notes(message)]
    return "\n".join(lines)


def _notes(reply: Reply) -> list[str]:
    """Return what the text alone does not show: that it is not whole."""
    if reply.error:
        return [f"the reply broke off: {safe_line(reply.error)}"]
    if not reply.is_finished:
        return ["unfinished"]
    return ["stopped"] if reply.reason == "cancelled" else []
