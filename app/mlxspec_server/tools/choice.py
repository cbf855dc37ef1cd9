"""The `tool_choice` of a request: which tools a model may call, and which it must."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec_server.body import Refusal

Tool = Mapping[str, Any]
"""A function in the format of OpenAI's chat API, which templates read too."""

_ALLOWED = "auto, none, required, or one of the tools by its name"


@dataclass(frozen=True)
class ToolChoice:
    """The tools of a request."""

    tools: Sequence[Tool] = ()  # offered to the model
    demanded: Sequence[Tool] = ()  # one of these must be called; () if text may be the answer
    is_parallel: bool = True  # whether one reply may make several calls

    @staticmethod
    def of(tools: Sequence[Tool], choice: Any, *, is_parallel: bool = True) -> "ToolChoice":
        """Return the tools that a choice leaves.

        `choice` is "auto", "none", "required", or an object that names one tool, as in OpenAI's
        APIs; None means "auto". An object may also restrict the allowed tools.
        """
        if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
            stated = choice.get("allowed_tools", choice)
            named = stated.get("tools") if isinstance(stated, Mapping) else None
            if not isinstance(named, list):
                raise Refusal(400, "allowed_tools must have a list of tools", "tool_choice")
            names = [_name(tool) for tool in named if _is_of(tool, "function")]
            tools, choice = _named(tools, names), stated.get("mode", "auto")
        if choice == "none":
            return ToolChoice()
        if choice is None or choice == "auto":
            return ToolChoice(tools, (), is_parallel)
        if choice != "required":  # a tool chosen by name is called once
            return ToolChoice(tools, _named(tools, [_name(choice)]), is_parallel=False)
        if not tools:
            raise Refusal(400, "tool_choice demands a call, but there are no tools", "tool_choice")
        return ToolChoice(tools, tools, is_parallel)


def function_tools(stated: Iterable[object], schema: str, kind: str = "function") -> list[Tool]:
    """Return the function tools in the format of templates.

    Tools of other types run on the servers of the API's maker and are left out. `schema` is the
    field that holds the schema of the arguments. `kind` is the type of a function; a tool without a
    type counts as one.
    """
    return [_tool(tool, schema) for tool in stated if _is_of(tool, kind)]


def _is_of(tool: object, kind: str) -> bool:
    """Whether a tool has a type; anything that is not an object counts, so that it is refused."""
    stated = tool.get("type") if isinstance(tool, Mapping) else None
    return stated == kind or not isinstance(stated, str)


def _tool(tool: object, schema: str) -> Tool:
    """Return a function; OpenAI's chat API nests its fields one level deeper than the others."""
    stated = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = stated.get("name") if isinstance(stated, Mapping) else None
    if not isinstance(stated, Mapping) or not isinstance(name, str) or not name:
        raise Refusal(400, "a tool must be a function with a name", "tools")
    parameters = stated.get(schema) or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise Refusal(400, f"{schema} of the tool {name[:60]} must be a JSON schema", "tools")
    function = {"name": name}
    function |= {"description": stated["description"]} if stated.get("description") else {}
    return {"type": "function", "function": {**function, "parameters": parameters}}


def _name(choice: Any) -> str:
    """Return the name in a choice; the type's name for a tool that is not a function."""
    stated = choice.get("function", choice) if isinstance(choice, Mapping) else {}
    name = stated.get("name") if isinstance(stated, Mapping) else None
    if name is None and not _is_of(choice, "function"):
        name = choice["type"]
    if not isinstance(name, str):
        raise Refusal(400, f"tool_choice must be {_ALLOWED}", "tool_choice")
    return name


def _named(tools: Sequence[Tool], names: Sequence[str]) -> Sequence[Tool]:
    there = {tool["function"]["name"]: tool for tool in tools}
    for name in names:
        if name not in there:
            functions = ", ".join(there)[:200] or "none"
            message = f"tool_choice names {name[:60]!r}; the functions are: {functions}"
            raise Refusal(400, message, "tool_choice")
    return [there[name] for name in names]
