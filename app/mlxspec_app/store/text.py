"""A chat as text: Markdown to read, JSON to keep all of it. Pure functions over records."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from mlxspec_app.store.records import Chat, StoredMessage
from mlxspec_app.text.code_blocks import closed

CHAT_FORMAT = "mlxspec-chat/1"


def chat_markdown(chat: Chat, messages: Sequence[StoredMessage]) -> str:
    """Return a conversation as Markdown.

    Args:
        chat: The chat.
        messages: Its messages in the order to show them, most likely the current path.
    """
    parts = [f"# {_one_line(chat.title) or 'Chat'}", f"*{_day(chat.created)}*"]
    if chat.system:
        parts += ["## System", closed(chat.system.rstrip())]
    for message in messages:
        parts += [f"## {_speaker(message)}", closed(message.text.rstrip())]
        parts += _notes(message)
    return "\n\n".join(part for part in parts if part) + "\n"


def chat_json(chat: Chat, messages: Sequence[StoredMessage]) -> str:
    """Return a chat as JSON.

    Args:
        chat: The chat.
        messages: Its messages, best those of all branches: each states its parent.
    """
    document = {
        "format": CHAT_FORMAT,
        "title": chat.title,
        "created": _moment(chat.created),
        "updated": _moment(chat.updated),
        "system": chat.system,
        "settings": chat.settings,
        "leaf": chat.leaf,
        "messages": [_as_json(message) for message in messages],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _as_json(message: StoredMessage) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": message.id,
        "parent": message.parent,
        "role": message.role,
        "state": message.state,
        "created": _moment(message.created),
        "text": message.text,
    }
    if message.generation is not None:
        record["generation"] = asdict(message.generation)
    return record


def _speaker(message: StoredMessage) -> str:
    if message.role == "user":
        return "You"
    generation = message.generation
    if generation is None or not generation.target:
        return "Assistant"
    drafter = f", drafted by {_one_line(generation.drafter)}" if generation.drafter else ""
    return f"{_one_line(generation.target)}{drafter}"


def _notes(message: StoredMessage) -> list[str]:
    """Return what a reader has to know about a message beside its text."""
    error = message.generation.error if message.generation is not None else ""
    if message.state == "failed":
        return [f"*The reply broke off: {_one_line(error) or 'the reason is not known'}*"]
    if message.state == "partial":
        return ["*The reply ends here: it was stopped or cut off.*"]
    return []


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
