"""A model's chat template: messages, tools and arguments to the text of a prompt.

The template is a Jinja program from the same source as the model. Its syntax tree shows which names
it reads. Jinja's sandbox protects files and Python's internals, but allows nested loops. So the
thread that renders the template checks a clock between the lines of the template. The clock counts
CPU time of the thread, so a busy or sleeping machine does not stop a good template. Powers are
refused: a single one, on one line, can run for years.
"""

import inspect
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from jinja2 import Environment, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from transformers import PreTrainedTokenizerFast

from mlxspec.errors import UnsupportedOperationError
from mlxspec.params.checks import is_list, wrong_type
from mlxspec.text.prompt import check_utf8, is_utf8

Message = Mapping[str, Any]
"""`role` and `content`, and other keys that the template reads, such as `tool_calls`."""

Tools = Sequence[Mapping[str, Any]] | None  # JSON schemas of the functions

_FAULTS = (  # of a template, which is a program
    *(TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError),
    *(TypeError, ValueError),
)
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")  # of an earlier reply
_GIVEN = frozenset(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters)
_OWN = frozenset({"messages", "raise_exception", "strftime_now"})  # given, too

TIME_S = 10.0  # of CPU time; real templates take milliseconds
_CODE = "<template>"  # Jinja's file name of compiled templates
_LINES = 64  # template lines between two checks of the clock


class ChatTemplate:
    """The chat template of a tokenizer; a change of the template takes effect at once."""

    def __init__(self, wrapped: PreTrainedTokenizerFast) -> None:
        self._wrapped = wrapped

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Tools = None,
        chat_template_args: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> str:
        """Return the text of a conversation.

        Args:
            messages: `role` and `content` of each message, and other keys that the template reads,
                such as `tool_calls` and `reasoning_content`. Roles are "system", "user",
                "assistant", "tool" and those that the template adds.
            add_generation_prompt: End with the template's start of the model's reply.
            tools: JSON schemas of the functions that the model may call.
            chat_template_args: Further variables of the template, such as `enable_thinking`.
            continue_final_message: End within the last message.

        Raises:
            ValueError: An argument of the template has a reserved name, or `tools` is no list of
                JSON schemas.
            UnsupportedOperationError: The model has no template, or the template raises.
        """
        args = chat_template_args or {}
        if self._wrapped.chat_template is None:
            raise UnsupportedOperationError(
                "the model has no chat template, so it cannot chat: give it plain text to "
                "continue, or choose an instruction-tuned model"
            )
        _check(tools, args)
        try:
            refuse_powers(self._wrapped.chat_template)
            with stopped_in_time():
                text = self._wrapped.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=None if tools is None else [dict(tool) for tool in tools],
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt and not continue_final_message,
                    continue_final_message=continue_final_message,
                    **args,
                )
        except _FAULTS as error:
            roles = ", ".join(dict.fromkeys(message.get("role", "?") for message in messages))
            raise UnsupportedOperationError(
                f"the model's chat template refuses messages of the roles {roles}: {error}"
            ) from error
        if not is_utf8(str(text)):
            # Reports the position in the user's text, if the fault is there.
            for given in _texts([messages, tools, args]):
                check_utf8(given)
            raise UnsupportedOperationError(
                "the model's chat template writes half a character, which cannot be tokenized: "
                "choose another model"
            )
        return str(text)

    def unknown(self, names: Iterable[str], *, has_tools: bool = False) -> list[str]:
        """Return those of the names that the template never reads; Jinja ignores them."""
        known = _variables(self._text(has_tools))
        return [name for name in names if name not in known]

    def arguments(self, *, has_tools: bool = False) -> list[str]:
        """Return the names that the template reads and that only the user can provide, sorted."""
        given = _GIVEN | _OWN | set(self._wrapped.SPECIAL_TOKENS_ATTRIBUTES)
        return sorted(_variables(self._text(has_tools)) - given)

    @property
    def reasoning_key(self) -> str | None:
        """The name under which it reads the reasoning of a message; None if it reads none."""
        words = _words(self._text(has_tools=False))
        return next((key for key in _REASONING_KEYS if key in words), None)

    def _text(self, has_tools: bool) -> str:
        try:
            return str(self._wrapped.get_chat_template(tools=[{}] if has_tools else None))
        except ValueError:  # several templates and no default: rendering reports it
            return ""


def _check(tools: object, args: Mapping[str, Any]) -> None:
    """Raise ValueError for tools that are no JSON schemas and for reserved names."""
    if tools is not None and not (
        is_list(tools) and all(isinstance(tool, Mapping) for tool in tools)
    ):
        allowed = (
            "JSON schemas in a list; transformers.utils.get_json_schema makes them of functions"
        )
        raise wrong_type("tools", allowed, tools)
    taken = sorted((_GIVEN | {"messages"}) & set(args))
    if taken:
        raise ValueError(
            f"chat_template_args holds {', '.join(taken)}, which the program itself gives to the "
            "template: leave it out"
        )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


class _Generation(Extension):
    """The block {% generation %} of transformers, which marks replies; only its body is used."""

    tags = {"generation"}  # noqa: RUF012  # the name and type are Jinja's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


@cache
def _tree(template: str) -> nodes.Template:
    environment = Environment(extensions=[loopcontrols, _Generation])
    try:
        tree = environment.parse(template)
        meta.find_undeclared_variables(tree)  # also finds unknown filters
    except (TemplateError, RecursionError):  # rendering reports what is wrong with it
        return environment.parse("")
    return tree


@cache
def _variables(template: str) -> frozenset[str]:
    return frozenset(meta.find_undeclared_variables(_tree(template)))


@cache
def _words(template: str) -> frozenset[str]:
    """Return the attribute names and the strings in a template."""
    tree = _tree(template)
    attributes = {found.attr for found in tree.find_all(nodes.Getattr)}
    texts = {found.value for found in tree.find_all(nodes.Const) if isinstance(found.value, str)}
    return frozenset(attributes | texts)


# ---- templates that do not end ----------------------------------------------------------------


class TemplateStoppedError(RuntimeError):
    """A template ran for too long, or could do so."""


def refuse_powers(template: str | Mapping[str, str]) -> None:
    """Raise TemplateStoppedError if a template, or one of several, has a power (**)."""
    templates = [template] if isinstance(template, str) else template.values()
    if any(map(_takes_powers, templates)):
        raise TemplateStoppedError("it uses powers (**), which may never end and no chat needs")


@cache  # every turn checks the same template
def _takes_powers(template: str) -> bool:
    return any(token[1:] == ("operator", "**") for token in Environment().lex(template))


@contextmanager
def stopped_in_time() -> Iterator[None]:
    """Raise TemplateStoppedError in the block when a template in it has run for `TIME_S`."""
    end, num_lines = time.thread_time() + TIME_S, 0

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if frame.f_code.co_filename == _CODE else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num_lines
        num_lines += 1
        if num_lines % _LINES == 0 and time.thread_time() > end:
            raise TemplateStoppedError(f"it ran for more than {TIME_S:g} seconds and was stopped")
        return step

    before = sys.gettrace()  # that of a debugger, most likely
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
