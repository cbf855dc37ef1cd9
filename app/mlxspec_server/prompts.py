"""Turns a chat or a plain text into the tokens of a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlxspec.chat.prompts import ChatPrompts
from mlxspec.errors import MlxspecError
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec_server.refusals import Refusal
from mlxspec_server.shelf import Loaded
from mlxspec_server.tools.calls import told_tools, told_turn
from mlxspec_server.tools.choice import Tool
from mlxspec_server.turns import Chat, Turn


@dataclass(frozen=True)
class Prompt:
    """The prompt of a reply.

    Attributes:
        num_begun: How many of the last tokens already belong to the reply.
    """

    tokens: list[int]
    num_begun: int = 0


def chat_prompt(
    loaded: Loaded, chat: Chat, tools: Sequence[Tool], args: Mapping[str, Any]
) -> Prompt:
    """Return the prompt of a chat.

    Raises:
        Refusal: The model's template rejects the chat.
    """
    tokenizer, turns = loaded.engine.tokenizer, list(chat.turns)
    last = _with_thoughts_open(turns.pop(), tokenizer) if chat.goes_on else None
    if loaded.tools is not None and loaded.tools.is_plain:
        turns, tools = _with_tools_told(turns, tools), ()
    prompts = ChatPrompts(tokenizer, loaded.offer.name, say=lambda line: None)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    try:
        if last is None or not last["content"].strip():
            return Prompt(encode(prompts.render(turns, list(tools) or None, args)))
        start, begun = prompts.render_open([*turns, last], list(tools) or None, args)
        tokens = encode(start + begun)
    except (MlxspecError, ValueError) as error:
        raise Refusal(400, str(error), "messages") from error
    return Prompt(tokens, len(tokens) - common_length(tokens, encode(start)))


def _with_thoughts_open(turn: Turn, tokenizer: Tokenizer) -> Turn:
    """Return the last assistant turn; if it has only reasoning, the reasoning stays open."""
    thoughts, marks = turn.get("reasoning_content"), tokenizer.reasoning
    if marks is None or not thoughts or turn["content"].strip():
        return turn
    return {"role": "assistant", "content": f"{marks.start}\n{thoughts}"}


def _with_tools_told(turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
    """Return the turns as texts for a template without tools; a system prompt lists the tools."""
    told = [{"role": "system", "content": told_tools(tools)}] if tools else []
    num_system = next((at for at, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    return [*turns[:num_system], *told, *map(told_turn, turns[num_system:])]


def raw_tokens(loaded: Loaded, prompt: Any) -> list[int]:
    """Return the tokens of a prompt without a template; `prompt` is a text or token ids."""
    if isinstance(prompt, str):
        try:
            return loaded.engine.tokenizer.encode(prompt)
        except ValueError as error:
            raise Refusal(400, str(error), "prompt") from error
    is_ids = isinstance(prompt, list) and all(type(token) is int for token in prompt)
    if not is_ids:
        message = "prompt must be a text, a list of token ids, or a list of either"
        raise Refusal(400, message, "prompt")
    return list(prompt)
