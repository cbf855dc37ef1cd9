"""Which tools a model may call, and which of them it has to: the `tool_choice` of a request."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec_server.refusals import Refusal

Tool = Mapping[str, Any]
"""A function as OpenAI's chat API and the templates of models describe it."""

_ALLOWED = "auto, none, required, or one of the tools by its name"


@dataclass(frozen=True)
class ToolChoice:
    """The tools of a request.

    Attributes:
        tools: Those that are offered to the model.
        demanded: Those of which one has to be called; none where the model may answer in words.
        is_parallel: Whether several calls may be made in one reply.
    """

    tools: Sequence[Tool] = ()
    demanded: Sequence[Tool] = ()
    is_parallel: bool = True

    @staticmethod
    def of(tools: Sequence[Tool], choice: Any, *, is_parallel: bool = True) -> "ToolChoice":
        """Return the tools that a choice leaves.

        Args:
            tools: All that the request has.
            choice: "auto", "none", "required", or an object that names one tool, as in OpenAI's
                APIs; None for "auto". An object may also allow some tools only.
            is_parallel: As in the class.

        Raises:
            Refusal: The choice is none of these, or names a tool that is not there.
        """
        if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
            stated = choice.get("allowed_tools", choice)
            named = stated.get("tools") if isinstance(stated, Mapping) else None
            names = [_name(tool) for tool in named] if isinstance(named, list) else []
            tools, choice = _named(tools, names), stated.get("mode", "auto")
        if choice == "none":
            return ToolChoice()
        if choice is None or choice == "auto":
            return ToolChoice(tools, (), is_parallel)
        demanded = tools if choice == "required" else _named(tools, [_name(choice)])
        if not demanded:
            raise Refusal(400, "tool_choice demands a call, but there are no tools", "tool_choice")
        return ToolChoice(tools, demanded, is_parallel)


def function_tools(stated: Iterable[object], schema: str) -> list[Tool]:
    """Return tools as templates take them.

    Args:
        stated: An object for each, with its name and other fields.
        schema: Name of the field with the schema of its arguments.

    Raises:
        Refusal: One is no object, or its name is no text.
    """
    return [_tool(fields if isinstance(fields, Mapping) else {}, schema) for fields in stated]


def _tool(stated: Mapping[str, Any], schema: str) -> Tool:
    name = stated.get("name")
    if not isinstance(name, str) or not name:
        raise Refusal(400, "a tool must be a function with a name", "tools")
    function = {"name": name}
    function |= {"description": stated["description"]} if "description" in stated else {}
    function |= {"parameters": stated[schema]} if schema in stated else {}
    return {"type": "function", "function": function}


def _name(choice: Any) -> str:
    """Return the name in a choice: OpenAI's chat API has it one level deeper than the others."""
    stated = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = stated.get("name") if isinstance(stated, Mapping) else None
    if not isinstance(name, str):
        raise Refusal(400, f"tool_choice must be {_ALLOWED}", "tool_choice")
    return name


def _named(tools: Sequence[Tool], names: Sequence[str]) -> Sequence[Tool]:
    there = {tool["function"]["name"]: tool for tool in tools}
    for name in names:
        if name not in there:
            message = f"tool_choice names {name[:60]!r}; the tools are: {', '.join(there)[:200]}"
            raise Refusal(400, message, "tool_choice")
    return [there[name] for name in names]
