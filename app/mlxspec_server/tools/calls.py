"""How a model writes tool calls: as mlx-lm reads them, and as a grammar demands them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from mlx_lm import tokenizer_utils

from mlxspec.params import Grammar
from mlxspec.params.grammar import escaped
from mlxspec.text.tokenizer import Tokenizer
from mlxspec_server.body import Refusal
from mlxspec_server.tools.choice import Tool, ToolChoice
from mlxspec_server.tools.form import CallForm, Pairs, form_of

_PLAIN = "json_tools"  # the format we describe to a model whose template has no tools
_PLAIN_FORM = CallForm(
    before='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    after="}\n</tool_call>",
    joint='}\n</tool_call>\n<tool_call>\n{"name": "',
)

_SPACES = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_SHARED = ("$defs", "definitions")


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


def with_tools_told(turns: Sequence[dict[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the turns as texts for a template without tools; a system prompt lists the tools."""
    num_system = next((at for at, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    told: list[dict[str, Any]] = []
    if tools:
        listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        how = 'To call one, write <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>'
        told = [{"role": "system", "content": f"You may call these functions:\n{listed}\n{how}"}]
    return [*turns[:num_system], *told, *map(_told_turn, turns[num_system:])]


def _told_turn(turn: dict[str, Any]) -> dict[str, Any]:
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


# ---- calls that are demanded ------------------------------------------------------------------


def demanded_grammar(choice: ToolChoice, format: ToolFormat | None) -> Grammar:
    """Return the grammar of a reply that calls at least one of the demanded tools."""
    if format is None or format.form is None:
        message = (
            "a call cannot be demanded of this model, as the form of its calls is not known: "
            "use tool_choice auto or none"
        )
        raise Refusal(400, message, "tool_choice")
    rules = _Rules(format.form, format.special)
    try:
        for index, tool in enumerate(choice.demanded):
            rules.add(index, tool)
        grammar = Grammar.lark(rules.text(choice.is_parallel))
        return replace(grammar, unchecked=tuple(sorted(rules.unchecked)))
    except ValueError as error:
        raise Refusal(400, f"tools: {error}", "tools") from error


class _Rules:
    """Writes rules in llguidance's dialect of Lark."""

    def __init__(self, form: CallForm, special: Mapping[str, int]) -> None:
        self._form, self._special = form, special
        names = sorted(special, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
        self.unchecked = set[str]()  # formats of the schemas
        self._rules: list[str] = []
        self._calls: list[str] = []  # names of the call rules
        self._empty: list[str] = []  # rules of calls without arguments, if these end differently

    def text(self, is_parallel: bool) -> str:
        form = self._form
        before = self.literal(form.before)
        more = ""
        if is_parallel and form.joint is not None:
            more = f"({self.literal(form.joint)} call)*"
        texts = [f"{before} call {more} after"] if self._calls else []
        texts += [f"{before} {name}" for name in self._empty]
        after = self.literal(form.pairs.close if form.pairs else form.after)
        calls = " | ".join(self._calls) or '""'
        rules = [f"start: {' | '.join(texts)}", f"call: {calls}", f"after: {after}", *self._rules]
        return "\n".join(rules) + "\n"

    def add(self, index: int, tool: Tool) -> None:
        function, name = tool["function"], f"call_{index}"
        checked = _checked_schema(function)
        schema = json.loads(checked.source)
        self.unchecked.update(checked.unchecked)
        if self._form.pairs is None:
            words = self.literal(function["name"] + self._form.middle)
            self._rules.append(f"{name}: {words} {_json(schema)}")
            self._calls.append(name)
            return
        if not schema.get("required"):
            empty = self.literal(function["name"] + self._form.pairs.empty)
            self._rules.append(f"{name}_empty: {empty}")
            self._empty.append(f"{name}_empty")
        if schema["properties"]:
            self._pairs(name, function["name"], schema, self._form.pairs)
            self._calls.append(name)

    def _pairs(self, name: str, function: str, schema: Mapping[str, Any], pairs: Pairs) -> None:
        """Write the rules of arguments one by one, in the order of the schema.

        `first` is the first argument; `rest` follows another one and starts with a gap.
        """
        properties, required = schema["properties"], set(schema.get("required", ()))
        if not all(isinstance(part, Mapping) for part in properties.values()):
            raise ValueError(f"the schema of {function} must have a schema for each property")
        self._rules.append(f"{name}: {self.literal(function + pairs.open)} {name}_first_0")
        for index, (key, part) in enumerate(properties.items()):
            pair, later = f"{name}_pair_{index}", f"{name}_rest_{index + 1}"
            value = self._value(f"{name}_value_{index}", part, schema, pairs)
            self._rules.append(f"{pair}: {self.literal(key)} {value}")
            first = f"{name}_first_{index}: {pair} {later}"
            rest = f"{name}_rest_{index}: {self.literal(pairs.gap)} {pair} {later}"
            if key not in required:
                is_last = index + 1 == len(properties)
                first += "" if is_last else f" | {name}_first_{index + 1}"
                rest += f" | {later}"
            self._rules += [first, rest]
        self._rules.append(f'{name}_rest_{len(properties)}: ""')

    def _value(
        self, name: str, part: Mapping[str, Any], schema: Mapping[str, Any], pairs: Pairs
    ) -> str:
        shared = {word: schema[word] for word in _SHARED if word in schema}
        if pairs.text is None or not _is_text(part):
            left, right = pairs.other
            return f"{self.literal(left)} {_json({**shared, **part})} {self.literal(right)}"
        left, right = pairs.text
        if "enum" in part:
            words = " | ".join(self.literal(str(word)) for word in part["enum"])
            return f"{self.literal(left)} ({words}) {self.literal(right)}"
        ending = next(self._parts(right))
        if ending in self._special:
            self._rules.append(f"{name}: /(?s:.*)/")
            return f"{self.literal(left)} {name} {self.literal(right)}"
        self._rules.append(f"{name}[lazy]: /(?s:.*){escaped(ending)}/")
        return f"{self.literal(left)} {name} {self.literal(right[len(ending) :])}"

    def literal(self, text: str) -> str:
        """Return a text in Lark's syntax, with special tokens by id."""
        special = {name: f"<[{token}]>" for name, token in self._special.items()}
        words = [
            special.get(one) or json.dumps(one, ensure_ascii=False) for one in self._parts(text)
        ]
        return " ".join(words) or '""'

    def _parts(self, text: str) -> Iterator[str]:
        return (part for part in (self._split.split(text) if self._split else [text]) if part)


def _checked_schema(function: Mapping[str, Any]) -> Grammar:
    """Return the schema of the arguments, which must be an object."""
    stated = function.get("parameters") or {}
    schema = {"type": "object", "properties": {}, **stated} if isinstance(stated, Mapping) else None
    if schema is None or schema["type"] != "object" or not isinstance(schema["properties"], dict):
        raise ValueError(f"the arguments of {function['name']} must be an object of JSON")
    return Grammar.json_schema(schema)


def _is_text(part: Mapping[str, Any]) -> bool:
    if "enum" in part:
        return all(isinstance(word, str) for word in part["enum"])
    return part.get("type") == "string"


def _json(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _SPACES})
