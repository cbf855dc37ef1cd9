"""The messages of a chat and their prompt, adapted to the limits of a model's template.

Templates differ in ways that a chat must not depend on: whether and where a system prompt is a
separate role, where the reasoning of an earlier reply belongs, which ids of calls they accept,
whether one role may speak twice, and which arguments they read.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import Any

from mlxspec.errors import UnsupportedOperationError, warn
from mlxspec.params import GenerationParams, checks
from mlxspec.text.chat_template import Message, TemplateStoppedError, Tools
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.reply_text import ReplyText

_APART = "\n\n"
_SWITCH = "enable_thinking"


class ChatPrompts:
    """Renders the messages of one chat by the template of a model."""

    def __init__(
        self, tokenizer: Tokenizer, model: str = "", say: Callable[[str], None] | None = None
    ) -> None:
        """Prepare the prompts of a chat; the tokenizer must have a chat template."""
        self._tokenizer = tokenizer
        self._model = model or "the model"
        self._say = say or warn
        self._said: set[str] = set()  # lines that must not be repeated for every turn

    def template_args(self, params: GenerationParams) -> Mapping[str, Any]:
        """Return the arguments of the template; its switch is off for a reply without reasoning."""
        args = params.chat_template_args
        if params.think_tokens == 0 and not self._tokenizer.chat_template.unknown([_SWITCH]):
            return {_SWITCH: False, **args}
        return args

    def render(self, messages: Sequence[Message], tools: Tools, args: Mapping[str, Any]) -> str:
        """Return the text of a prompt, and report the arguments that have no effect."""
        text = self._written(messages, tools=tools, chat_template_args=args)
        if args or tools:
            self._tell_what_is_ignored([*args, *(["tools"] if tools else [])], bool(tools))
        return text

    def render_open(
        self, messages: Sequence[Message], tools: Tools, args: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Return the text of a prompt in which the reply continues the last message.

        If the template cannot leave a message open, or would close its reasoning, that message
        follows the template's own start of a reply. The second text is the start of the reply.
        """
        *earlier, last = messages
        begun, marks = content_of(last), self._tokenizer.reasoning
        if marks is None or not begun.lstrip().startswith(marks.start):
            how = {"tools": tools, "chat_template_args": args, "continue_final_message": True}
            with suppress(UnsupportedOperationError):
                text = self._written(messages, **how)
                at = text.rindex(begun.strip())
                # Some templates cut spaces; the reply continues after them.
                return text[:at], text[at:].rstrip() + begun[len(begun.rstrip()) :]
        start = self.render(earlier, tools, args)
        if marks is not None and (opening := marks.opening_of(start)):
            rest = begun.lstrip().removeprefix(marks.start).lstrip("\n")
            return start.removesuffix(opening), opening + rest
        return start, begun

    def reply_message(self, said: ReplyText, prompt: str) -> dict[str, str]:
        """Return a reply as a message; its reasoning is separate if the template reads it so.

        `prompt` is the end of its prompt, or "" if unknown.
        """
        marks = self._tokenizer.reasoning
        if marks is None or not said.is_split:
            return {"role": "assistant", "content": said.text}
        key = self._tokenizer.chat_template.reasoning_key
        if key is None:
            # A reply that started inside its reasoning lacks the opening mark, which is in its
            # prompt.
            content = marks.opening_of(prompt) + marks.written(said.pieces)
            return {"role": "assistant", "content": content}
        content, reasoning = said.answer.lstrip("\n"), said.reasoning.strip("\n")
        return {"role": "assistant", "content": content, key: reasoning}

    def split(self, reply: str) -> ReplyText:
        """Split a stored reply, of which only the text is known, into its channels."""
        marks = self._tokenizer.reasoning
        return ReplyText([("answer", reply)] if marks is None else marks.split(reply))

    def _written(self, messages: Sequence[Message], **how: Any) -> str:
        """Return the text of the least changed form of a chat that the template accepts."""
        refusal: UnsupportedOperationError | None = None
        for form in _forms(self._with_system_placed(messages)):
            try:
                return self._tokenizer.render_chat(form, **how)
            except UnsupportedOperationError as error:
                refusal = refusal or error
                if isinstance(error.__cause__, TemplateStoppedError):
                    break
        assert refusal is not None, "there is at least one form"
        raise refusal

    def _with_system_placed(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with one system prompt, where the template reads it.

        If the template accepts no later system prompt, that becomes a message of the user.
        """
        leading = list(takewhile(_is_system, messages))
        rest = list(messages[len(leading) :])
        if any(map(_is_system, rest)) and not self._has_late_system_role:
            rest = [{**m, "role": "user"} if _is_system(m) else m for m in rest]
        if not leading:
            return rest
        system = {**leading[0], "content": _APART.join(map(content_of, leading))}
        if not self._has_system_role:
            return _with_system_inside(system, rest)
        return [system if len(leading) > 1 else leading[0], *rest]

    @cached_property
    def _has_system_role(self) -> bool:
        return self._reads_system(before=[])

    @cached_property
    def _has_late_system_role(self) -> bool:
        reply = {"role": "assistant", "content": "a reply"}
        return self._reads_system(before=[{"role": "user", "content": "a message"}, reply])

    def _reads_system(self, before: Sequence[Message]) -> bool:
        """Whether the template shows the text of a system prompt after these messages."""
        probe = "a system prompt"
        messages = [{"role": "system", "content": probe}, {"role": "user", "content": "a message"}]
        try:
            return probe in self._tokenizer.render_chat([*before, *messages])
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
    """Return the messages of a turn: a text of the user, a message, or several."""
    if isinstance(text, str):
        return [{"role": "user", "content": text}]
    messages = [text] if isinstance(text, Mapping) else text
    if not checks.is_list(messages) or not messages or not all(map(_is_message, messages)):
        allowed = 'a text, a message with a "role", or a list of messages'
        raise checks.wrong_type("text", allowed, text)
    return [dict(message) for message in messages]


def content_of(message: Message) -> str:
    """Return the text of a message; content that is not text becomes JSON."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, default=str)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str)


def _is_system(message: Message) -> bool:
    return bool(message["role"] == "system")


def _with_system_inside(system: Message, messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the system prompt before the text of the first message.

    Templates that have no such role but accept one, such as Gemma 3's, do the same.
    """
    if not messages or messages[0]["role"] != "user":
        return [{**system, "role": "user"}, *messages]
    return [_as_one(system, messages[0]), *messages[1:]]


def _as_one(first: Message, second: Message) -> Message:
    """Return the second message with the text of the first before its own."""
    return {**second, "content": f"{content_of(first)}{_APART}{content_of(second)}"}


def _forms(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield a chat unchanged, then in forms for increasingly strict templates."""
    yield messages
    for changed in (_with_short_ids, _with_objects, _with_turns_joined):
        before, messages = messages, changed(messages)
        if messages != before:
            yield messages


def _with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with ids of nine letters and digits, the same for call and result."""
    ids: dict[object, str] = {}

    def short(stated: object) -> str:
        return ids.setdefault(stated, f"call{len(ids):05}")

    def changed(message: Message) -> Message:
        found = _with_calls(message, lambda call: {**call, "id": short(call.get("id"))})
        is_result = message["role"] == "tool"
        return {**found, "tool_call_id": short(found.get("tool_call_id"))} if is_result else found

    return list(map(changed, messages))


def _with_objects(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with an object as the arguments of each call, {} if there are none."""

    def whole(call: Message) -> Message:
        function = call["function"]
        is_object = isinstance(function.get("arguments"), Mapping)
        return call if is_object else {**call, "function": {**function, "arguments": {}}}

    return [_with_calls(message, whole) for message in messages]


def _with_calls(message: Message, change: Callable[[Message], Message]) -> Message:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [change(call) for call in calls]} if calls else message


def _with_turns_joined(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with consecutive messages of the user joined to one."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"] == "user":
            joined[-1] = _as_one(joined[-1], message)
        else:
            joined.append(message)
    return joined
