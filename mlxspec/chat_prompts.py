"""The messages of a chat and their prompt: what a model's template takes, and what it lacks.

Templates differ in three ways that a chat must not depend on: whether a system prompt is a role of
its own, where the reasoning of an earlier reply stands, and which arguments they read.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from mlxspec.chat_template import Message
from mlxspec.errors import WARNING, UnsupportedOperationError
from mlxspec.params import checks
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.reply_text import ReplyText


class ChatPrompts:
    """Renders the messages of one chat by the template of a model."""

    def __init__(
        self, tokenizer: Tokenizer, model: str = "", say: Callable[[str], None] | None = None
    ) -> None:
        """Prepare the prompts of a chat.

        Args:
            tokenizer: It has a chat template.
            model: Name of the model, for messages.
            say: Called with one line for the user; None makes it a Python warning.
        """
        self._tokenizer = tokenizer
        self._model = model or "the model"
        self._say = say or _warn
        self._said: set[str] = set()  # a line is not repeated for every turn

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        args: Mapping[str, Any],
    ) -> str:
        """Return the text of a prompt, and say which arguments have no effect.

        Args:
            messages: The messages, the system prompt first if there is one.
            tools: JSON schemas of functions, or None.
            args: Further variables of the template.
        """
        if messages[0]["role"] == "system" and not self._has_system_role:
            messages = _with_system_inside(messages)
        text = self._tokenizer.render_chat(messages, tools=tools, chat_template_args=args)
        if args or tools:
            self._tell_what_is_ignored([*args, *(["tools"] if tools else [])], bool(tools))
        return text

    def reply_message(self, said: ReplyText, prompt: str) -> dict[str, str]:
        """Return a reply as a message: with its reasoning apart, if the template reads it so.

        Args:
            said: Text of the reply.
            prompt: The end of its prompt, "" if unknown.
        """
        marks = self._tokenizer.reasoning
        if marks is None or not said.is_split:
            return {"role": "assistant", "content": said.text}
        key = self._tokenizer.chat_template.reasoning_key
        if key is None:
            # A reply that began inside its reasoning lacks the opening mark of its prompt.
            content = marks.opening_of(prompt) + marks.written(said.pieces)
            return {"role": "assistant", "content": content}
        content, reasoning = said.answer.lstrip("\n"), said.reasoning.strip("\n")
        return {"role": "assistant", "content": content, key: reasoning}

    def split(self, reply: str) -> ReplyText:
        """Return a stored reply, of which only the text is known, in its channels."""
        marks = self._tokenizer.reasoning
        return ReplyText([("answer", reply)] if marks is None else marks.split(reply))

    @cached_property
    def _has_system_role(self) -> bool:
        """Whether the text of a system prompt comes through the template."""
        probe = "a system prompt"
        messages = [{"role": "system", "content": probe}, {"role": "user", "content": "a message"}]
        try:
            return probe in self._tokenizer.render_chat(messages)
        except UnsupportedOperationError:
            return False

    def _tell_what_is_ignored(self, names: Sequence[str], has_tools: bool) -> None:
        template = self._tokenizer.chat_template
        for name in template.unknown(names, has_tools=has_tools):
            known = ", ".join(template.arguments(has_tools=has_tools)) or "none"
            line = (
                f"warning: the chat template of {self._model} does not read {name!r}, so it has no "
                f"effect; the arguments that it reads: {known}"
            )
            if line not in self._said:
                self._said.add(line)
                self._say(line)


def messages_of(text: object) -> list[Message]:
    """Return the messages of a turn.

    Raises:
        ValueError: It is neither a text nor a message, nor a list of messages.
    """
    if isinstance(text, str):
        return [{"role": "user", "content": text}]
    messages = [text] if isinstance(text, Mapping) else text
    if not checks.is_list(messages) or not messages or not all(map(_is_message, messages)):
        allowed = 'a text, a message with a "role", or a list of messages'
        raise checks.wrong_type("text", allowed, text)
    return [dict(message) for message in messages]


def content_of(message: Message) -> str:
    """Return the text of a message; content that is no text is written as JSON."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, default=str)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str)


def _with_system_inside(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the system prompt before the text of the first message.

    It is what the templates do that have no such role but accept one, as that of Gemma 3.
    """
    system, first, *others = messages
    content = f"{system['content']}\n\n{content_of(first)}"
    return [{**first, "content": content}, *others]


def _warn(line: str) -> None:
    warnings.warn(line.removeprefix(WARNING), stacklevel=2)
