"""Compares the tokens of two recorded runs: the test of a lossless method.

Greedy runs of the same target over the same prompt must agree token for token. Sampled runs need
not: two samples of the same distribution can differ, though many with one seed agree. Runs with
different prompts, targets or settings are not compared, and the agreement names the difference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

from mlxspec.trace.difference import common_length
from mlxspec.trace.events import Event, GenerationStarted
from mlxspec_app.conversation.figures import GREEDY
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.text.safe_text import safe_line, token_label

_MAY_DIFFER = "both keep the target's distribution (sampled): texts may differ"
_QUOTED_CELLS = 40
_LIMITS = {"length": "at its length limit", "context": "with a full context"}


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison; `identical` holds up to the end of the shorter run."""

    kind: Literal["identical", "differs", "sampled", "incomparable"]
    line: str


class Answer(NamedTuple):
    """A reply, and the (role, text) of the messages since the reply before it."""

    turns: list[tuple[str, str]]
    reply: Reply

    @property
    def prompt_tokens(self) -> int | None:
        return self.reply.prefill.total if self.reply.prefill is not None else None


def answers(events: Iterable[Event]) -> list[Answer]:
    """Return the replies of a recording that started or have tokens."""
    found: list[Answer] = []
    turns: list[tuple[str, str]] = []
    for message in fold(events).messages:
        if not isinstance(message, Reply):
            turns.append((message.role, message.text))
        elif message.started is not None or message.tokens:
            found.append(Answer(turns, message))
            turns = []
    return found


def compare(
    a: Iterable[Event], b: Iterable[Event], names: tuple[str, str] = ("A", "B")
) -> Agreement:
    """Return whether two recorded runs agree; `names` are what its line calls them."""
    ours, theirs = answers(a), answers(b)
    obstacle = _obstacle(ours, theirs)
    if obstacle:
        return Agreement("incomparable", f"not compared: {obstacle}")
    found = _compare_tokens(ours, theirs, names)
    starts = [[a.reply.started for a in run if a.reply.started] for run in (ours, theirs)]
    if any(started.lossless != GREEDY for started in starts[0]):
        if found.kind != "identical":
            return Agreement("sampled", _MAY_DIFFER)
        seeds = [[started.seed for started in run] for run in starts]
        words = " (one seed)" if seeds[0] == seeds[1] else ""
        found = Agreement(found.kind, found.line + words)
    if any(answer.turns for answer in ours):
        return found
    tokens = ours[0].prompt_tokens
    return Agreement(found.kind, f"{found.line} (prompts not recorded, {tokens} tokens each)")


def _obstacle(ours: Sequence[Answer], theirs: Sequence[Answer]) -> str:
    """Return the first difference of prompts, targets or settings as text, or ""."""
    for run in (ours, theirs):
        if not any(answer.reply.tokens for answer in run):
            return "one run holds no reply"
    for one, other in zip(ours, theirs, strict=False):
        found = _different_settings(one.reply.started, other.reply.started)
        if found := found or _different_prompts(one, other):
            return found
    if len(ours) != len(theirs):
        return f"different prompts, one answers {len(ours)} and the other {len(theirs)}"
    mine, yours = ours[0].prompt_tokens, theirs[0].prompt_tokens
    return f"different prompts ({mine} and {yours} tokens)" if mine != yours else ""


def _different_settings(ours: GenerationStarted | None, theirs: GenerationStarted | None) -> str:
    if ours is None or theirs is None:
        return "a trace does not say which target wrote it"
    for name in ("target", "weights", "cache"):
        mine, yours = getattr(ours, name), getattr(theirs, name)
        if mine != yours:
            return f"different {name} ({_quoted(mine)} and {_quoted(yours)})"
    if (ours.lossless == GREEDY) != (theirs.lossless == GREEDY):
        return f"one is {_quoted(ours.lossless)} and the other {_quoted(theirs.lossless)}"
    mine, yours = dict(ours.sampling), dict(theirs.sampling)
    if ours.lossless == GREEDY:  # its text does not depend on the temperature
        mine["temperature"] = yours["temperature"] = 0
    changed = sorted(name for name in mine | yours if mine.get(name) != yours.get(name))
    return f"different settings ({', '.join(changed)})" if changed else ""


def _different_prompts(one: Answer, other: Answer) -> str:
    for mine, yours in zip_longest(one.turns, other.turns):
        if mine != yours:
            texts = [_quoted(turn[1]) if turn is not None else "nothing" for turn in (mine, yours)]
            return f"different prompts ({texts[0]} and {texts[1]})"
    return ""


def _compare_tokens(
    ours: Sequence[Answer], theirs: Sequence[Answer], names: tuple[str, str]
) -> Agreement:
    (a, b), same = names, 0
    total = max(sum(len(answer.reply.tokens) for answer in run) for run in (ours, theirs))
    for (_, one), (_, other) in zip(ours, theirs, strict=True):
        index = common_length(one.tokens, other.tokens)
        same += index
        lengths = len(one.tokens), len(other.tokens)
        if index == min(lengths) and lengths[0] != lengths[1]:
            shorter = one if index == lengths[0] else other
            # the end token is a decision of the model, a limit is not
            if shorter.reason != "stop":
                name, ended = names[shorter is other], _LIMITS.get(shorter.reason or "")
                line = f"identical: {same} of {same} tokens, then {name} ended {ended or 'early'}"
                return Agreement("identical", line)
        if index < max(lengths):
            mine, yours = _named(one, index), _named(other, index)
            line = f"the texts part after {same} tokens: {a} has {mine}, {b} has {yours}"
            return Agreement("differs", line)
    return Agreement("identical", f"identical: {same} of {total} tokens")


def _named(reply: Reply, index: int) -> str:
    emitted = reply.emitted
    return f'"{token_label(emitted[index].text)}"' if index < len(emitted) else "its end"


def _quoted(text: str) -> str:
    shown = safe_line(text)
    cut = shown if len(shown) <= _QUOTED_CELLS else shown[: _QUOTED_CELLS - 1] + "…"
    return f'"{cut}"'
