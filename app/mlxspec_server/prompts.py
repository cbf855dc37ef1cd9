"""From the messages of a request to the tokens of a prompt."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlxspec.chat_prompts import ChatPrompts
from mlxspec.errors import MlxspecError
from mlxspec_server.body import Body
from mlxspec_server.refusals import Refusal
from mlxspec_server.shelf import Loaded
from mlxspec_server.tools.calls import told_tools
from mlxspec_server.tools.choice import Tool

_ROLES = {"developer": "system", "function": "tool"}


def chat_tokens(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    args: Mapping[str, Any],
) -> list[int]:
    """Return the tokens of a chat.

    Raises:
        Refusal: The model's template refuses it.
    """
    tokenizer = loaded.engine.tokenizer
    if tools and loaded.tools is not None and loaded.tools.is_plain:
        messages, tools = _with_tools_told(messages, tools), ()
    prompts = ChatPrompts(tokenizer, loaded.offer.name, say=lambda line: None)
    try:
        text = prompts.render(messages, list(tools) or None, args)
        return tokenizer.encode(text, add_special_tokens=False)
    except (MlxspecError, ValueError) as error:
        raise Refusal(400, str(error), "messages") from error


def _with_tools_told(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
) -> list[Mapping[str, Any]]:
    """Return the messages with the tools in the system prompt."""
    has_system = messages[0].get("role") == "system"
    system = [text_of(messages[0].get("content"))] if has_system else []
    told = "\n\n".join([*system, told_tools(tools)])
    return [{"role": "system", "content": told}, *messages[has_system:]]


def chat_messages(body: Body) -> list[dict[str, Any]]:
    """Return the messages of OpenAI's chat API as templates take them.

    Raises:
        Refusal: A message is none, or has content that is no text.
    """
    stated = body.items("messages")
    if not stated:
        raise Refusal(400, "messages must be a list with at least one message", "messages")
    return [_message(message) for message in stated]


def _message(stated: Any) -> dict[str, Any]:
    if not isinstance(stated, Mapping) or not isinstance(stated.get("role"), str):
        raise Refusal(400, "a message must be an object with a role", "messages")
    message = {name: value for name, value in stated.items() if value is not None}
    message["role"] = _ROLES.get(message["role"], message["role"])
    message["content"] = text_of(stated.get("content"))
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in calls]
    return message


def text_of(content: Any) -> str:
    """Return the text of content: a text, or parts that are texts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise Refusal(400, "content must be a text, or a list of parts", "messages")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise Refusal(400, f"content may be text alone; got a part of type {kind}", "messages")
        texts.append(text)
    return "".join(texts)


def _call(stated: Any) -> Any:
    """Return a call with its arguments as an object, which is what templates read."""
    function = stated.get("function") if isinstance(stated, Mapping) else None
    if not isinstance(function, Mapping):
        raise Refusal(400, "a tool call must have a function", "messages")
    return {**stated, "function": {**function, "arguments": arguments_of(function)}}


def arguments_of(function: Mapping[str, Any]) -> Any:
    """Return the arguments of a call, from JSON where they are that."""
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def raw_tokens(loaded: Loaded, prompt: Any) -> list[int]:
    """Return the tokens of a prompt without a template: a text, or token ids."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        try:
            return loaded.engine.tokenizer.encode(prompt)
        except ValueError as error:
            raise Refusal(400, str(error), "prompt") from error
    is_ids = isinstance(prompt, list) and all(type(token) is int for token in prompt)
    if not is_ids:
        raise Refusal(400, "prompt must be one text, or one list of token ids", "prompt")
    return list(prompt)
