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
            if not isinstance(named, list):
                raise Refusal(400, "allowed_tools must have a list of tools", "tool_choice")
            names = [_name(tool) for tool in named if _is_of(tool, "function")]
            tools, choice = _named(tools, names), stated.get("mode", "auto")
        if choice == "none":
            return ToolChoice()
        if choice is None or choice == "auto":
            return ToolChoice(tools, (), is_parallel)
        if choice != "required":  # one tool by its name is one call of it
            return ToolChoice(tools, _named(tools, [_name(choice)]), is_parallel=False)
        if not tools:
            raise Refusal(400, "tool_choice demands a call, but there are no tools", "tool_choice")
        return ToolChoice(tools, tools, is_parallel)


def function_tools(stated: Iterable[object], schema: str, kind: str = "function") -> list[Tool]:
    """Return the functions among tools as templates take them.

    Tools of other types run on the servers of the API's maker, so they are left out.

    Args:
        stated: An object for each, with its name and other fields.
        schema: Name of the field with the schema of its arguments.
        kind: The type of a function; a tool without a type is one.

    Raises:
        Refusal: One is no object, its name is no text, or its schema is none.
    """
    return [_tool(tool, schema) for tool in stated if _is_of(tool, kind)]


def _is_of(tool: object, kind: str) -> bool:
    """Whether a tool is of a type; what is no tool at all is, so that it is refused."""
    stated = tool.get("type") if isinstance(tool, Mapping) else None
    return stated == kind or not isinstance(stated, str)


def _tool(tool: object, schema: str) -> Tool:
    """Return a function: OpenAI's chat API has its fields one level deeper than the others."""
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
    """Return the name in a choice; that of its type for a tool that is no function."""
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
