r"""How a model writes calls, found by rendering its own chat template.

The template renders a chat with a call. The literal text around name and arguments is what the
model was trained to write. mlx-lm's parser must then read the sample back, or the form is not used.
Two kinds of template exist:

    <tool_call>\n{"name": "NAME", "arguments": {...}}\n</tool_call>            one JSON object
    <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>...    pairs
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.trace.difference import common_length

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""Renders a chat with the model's template."""

Call = tuple[str, Mapping[str, Any]]

_NAME, _OTHER, _KEY, _NEXT, _VALUE, _NUMBER = "zqfun", "zqfuo", "zqkey", "zqnext", "zqtext", 7531
_IDS = ("zq{index}000000", "functions.{name}:{index}")  # some templates render the id of a call
_LIST = ["zqitem"]
_PARAMETERS = {"type": "object", "properties": {_KEY: {"type": "string"}}}
_TOOL = {"type": "function", "function": {"name": _NAME, "parameters": _PARAMETERS}}


@dataclass(frozen=True)
class Pairs:
    """Arguments that are written one by one."""

    open: str  # from the name of the function to the first key
    gap: str  # from the end of a value to the next key
    close: str  # from the end of the last value to the end of the call
    empty: str  # from the name of the function to the end of a call without arguments
    text: tuple[str, str] | None  # before and after a text value; None if texts are written as JSON
    other: tuple[str, str]  # before and after any other value, which is written as JSON


@dataclass(frozen=True)
class CallForm:
    """The literal text of calls."""

    before: str  # from the start mark to the name of the first function
    middle: str  # from the name to the arguments, if these are one JSON object
    after: str  # from the arguments to the end mark; "" for pairs, which contain it
    joint: str | None = None  # from there to the name of the next; None if only one is allowed
    pairs: Pairs | None = None  # of arguments that are not one JSON object

    @property
    def text(self) -> str:
        pairs = self.pairs
        inner = [pairs.open, pairs.gap, pairs.close, pairs.empty, *pairs.other] if pairs else []
        inner += pairs.text or () if pairs else ()
        return "".join([self.before, self.middle, self.after, self.joint or "", *inner])


def form_of(
    marks: tuple[str, str], parse: Callable[[str, Any], Any], render: Render, ends: Sequence[str]
) -> CallForm | None:
    """Return the form in which a template writes calls; None if it is neither of the two.

    The second of `marks` may be "". `ends` are names of special tokens: the first one after a call
    without an end mark ends it.
    """
    for pattern in _IDS:
        probe = _Probe(marks, render, ends, pattern)
        try:
            sample = probe.written([(_NAME, {_KEY: _VALUE})])
            inner = sample.removeprefix(marks[0]).removesuffix(marks[1])
            found = parse(inner, [_TOOL])
            (call,) = found if isinstance(found, list) else [found]
            if call["name"] != _NAME or call["arguments"] != {_KEY: _VALUE}:
                continue
            return probe.object_form(sample) or probe.pairs_form(sample)
        except Exception:  # templates and parsers are third-party code
            continue
    return None


@dataclass(frozen=True)
class _Probe:
    marks: tuple[str, str]
    render: Render
    ends: Sequence[str]
    id_pattern: str

    def written(self, calls: Sequence[Call]) -> str:
        listed = [
            {
                "id": self.id_pattern.format(name=name, index=index),
                "type": "function",
                "function": {"name": name, "arguments": dict(arguments)},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        reply = {"role": "assistant", "content": "", "tool_calls": listed}
        text = self.render([{"role": "user", "content": "hi"}, reply])
        start, end = self.marks
        at = text.rindex(start, 0, text.index(calls[0][0]) + 1)
        if end:
            return text[at : text.rindex(end) + len(end)]
        last = text.rindex(calls[-1][0])
        stops = [text.find(mark, last) for mark in self.ends]
        return text[at : min([stop for stop in stops if stop >= 0], default=len(text))].rstrip()

    def object_form(self, sample: str) -> CallForm | None:
        arguments = json.dumps({_KEY: _VALUE})
        if arguments not in sample:
            return None
        before, _, rest = sample.partition(_NAME)
        middle, _, after = rest.partition(arguments)
        joint = self._joint(f"{before}{_NAME}{middle}{arguments}", f"{middle}{arguments}{after}")
        return CallForm(before, middle, after, joint)

    def pairs_form(self, sample: str) -> CallForm | None:
        before, _, rest = sample.partition(_NAME)
        open, _, rest = rest.partition(_KEY)
        left_text, _, last_text = rest.partition(_VALUE)
        left_other, last_other = self._around({_KEY: _NUMBER}, str(_NUMBER))
        gap_text, gap_other = self._gap(_VALUE), self._gap(_NUMBER)
        gap = gap_text[len(gap_text) - common_length(gap_text[::-1], gap_other[::-1]) :]
        right_text, right_other = gap_text[: -len(gap)], gap_other[: -len(gap)]
        if last_other != right_other + last_text.removeprefix(right_text):
            return None
        close = last_text[len(right_text) :]
        # Text that follows every value is part of the value's delimiter: it ends a text.
        shared = gap[: common_length(gap, close)]
        gap, close = gap[len(shared) :], close[len(shared) :]
        text: tuple[str, str] | None = (left_text, right_text + shared)
        other = (left_other, right_other + shared)
        if (left_text, right_text) == (f'{left_other}"', f'"{right_other}'):
            text = None
        if self._around({_KEY: _LIST}, json.dumps(_LIST)) != (left_other, last_other):
            return None
        empty = self.written([(_NAME, {})]).partition(_NAME)[2]
        head = sample[: sample.index(last_text, sample.index(_VALUE))]
        joint = self._joint(head, f"{open}{_KEY}{left_text}{_VALUE}{last_text}")
        if joint is not None:
            joint = joint[len(right_text + shared) :]
        return CallForm(before, "", "", joint, Pairs(open, gap, close, empty, text, other))

    def _around(self, arguments: Mapping[str, Any], value: str) -> tuple[str, str]:
        """Return the text between key and value, and the text after the value."""
        rest = self.written([(_NAME, arguments)]).partition(_KEY)[2]
        left, found, right = rest.partition(value)
        if not found:
            raise ValueError(f"the template does not write {value} as JSON")
        return left, right

    def _gap(self, value: object) -> str:
        rest = self.written([(_NAME, {_KEY: value, _NEXT: value})]).partition(str(value))[2]
        return rest.partition(_NEXT)[0]

    def _joint(self, head: str, tail: str) -> str | None:
        """Return the text between two calls; None if a template writes only one."""
        arguments = {_KEY: _VALUE}
        try:
            text = self.written([(_NAME, arguments), (_OTHER, arguments)])
        except Exception:  # as in `form_of`: this template writes only one call
            return None
        joint, _, rest = text.removeprefix(head).partition(_OTHER)
        return joint if text.startswith(head) and rest == tail else None
