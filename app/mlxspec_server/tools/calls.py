"""The format in which a model writes tool calls and mlx-lm reads them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from mlx_lm import tokenizer_utils

from mlxspec.params import GenerationParams
from mlxspec.tokenizer import Tokenizer
from mlxspec_server.refusals import Refusal
from mlxspec_server.tools.choice import Tool, ToolChoice
from mlxspec_server.tools.demand import demanded_grammar
from mlxspec_server.tools.form import CallForm, form_of

_PLAIN = "json_tools"  # the format we describe to a model whose template has no tools
_PLAIN_FORM = CallForm(
    before='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    after="}\n</tool_call>",
    joint='}\n</tool_call>\n<tool_call>\n{"name": "',
)


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls; `special` are the tokens in them without a text of their own."""

    start: str  # the mark before a call
    end: str  # the mark after it; "" if the end of the reply ends the call
    parse: Callable[[str, Any], Any]  # reads the text between the marks; may raise any exception
    form: CallForm | None = None  # the literal text around name and arguments; None if not found
    is_plain: bool = False  # whether the template does not mention tools, so that the prompt has to
    special: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(tokenizer: Tokenizer) -> "ToolFormat | None":
        """Return the format of a model.

        None if its template has tools that mlx-lm has no parser for, and if it has no template.
        """
        if not tokenizer.has_chat_template:
            return None
        kind = tokenizer_utils._infer_tool_parser(tokenizer.wrapped)
        is_plain = kind is None and bool(tokenizer.chat_template.unknown(["tools"], has_tools=True))
        if kind is None and not is_plain:
            return None
        module = import_module(f"mlx_lm.tool_parsers.{kind or _PLAIN}")
        start, end, parse = module.tool_call_start, module.tool_call_end, module.parse_tool_call
        special = tokenizer.special
        render = partial(tokenizer.render_chat, add_generation_prompt=False)
        form = _PLAIN_FORM if is_plain else form_of((start, end), parse, render, list(special))
        text = start + end + (form.text if form else "")
        inside = {name: token for name, token in special.items() if name in text}
        return ToolFormat(start, end, parse, form, is_plain, inside)


def demanding(
    params: GenerationParams, choice: ToolChoice, format: ToolFormat | None
) -> GenerationParams:
    """Return the settings of a reply that must call one of the demanded tools."""
    if format is None or format.form is None:
        message = (
            "a call cannot be demanded of this model, as the form of its calls is not known: "
            "use tool_choice auto or none"
        )
        raise Refusal(400, message, "tool_choice")
    return replace(params, grammar=demanded_grammar(choice, format.form, format.special))


def told_tools(tools: Sequence[Tool]) -> str:
    """Return the text that describes tools to a model whose template does not."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You may call these functions:\n{listed}\n"
        'To call one, write <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>'
    )


def told_turn(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn with its calls, or a call's result, as text in the same form."""
    if turn["role"] == "tool":
        result = f"<tool_response>\n{turn['content']}\n</tool_response>"
        return {"role": "user", "content": result}
    if "tool_calls" not in turn:
        return turn
    form, texts = _PLAIN_FORM, [turn["content"]] if turn["content"] else []
    for call in (call["function"] for call in turn["tool_calls"]):
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        texts.append(f"{form.before}{call['name']}{form.middle}{arguments}{form.after}")
    return {"role": turn["role"], "content": "\n".join(texts)}
