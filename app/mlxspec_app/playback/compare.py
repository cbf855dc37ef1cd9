"""Compares the tokens of two recorded runs: the test of a lossless method.

Greedy runs of the same target over the same prompt must agree token for token. Sampled runs need
not: two samples of the same distribution can differ, though many with one seed agree. Runs with
different prompts, targets or settings are not compared, and the verdict names the difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

from mlxspec.trace.difference import common_length
from mlxspec.trace.events import (
    DraftVerified,
    EmittedToken,
    Event,
    FinishReason,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TokensKept,
    TurnStarted,
)
from mlxspec_app.text.safe_text import safe_line, token_label

_GREEDY = "greedy"
_MAY_DIFFER = "both keep the target's distribution (sampled): texts may differ"
_QUOTED_CELLS = 40


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison; `identical` holds up to the end of the shorter run."""

    kind: Literal["identical", "differs", "sampled", "incomparable"]
    line: str


@dataclass
class RecordedReply:
    """A reply and the turns that it answers.

    `turns` are the (role, text) since the previous reply. `started` and `prompt_tokens` are None if
    they are not recorded. `reason` is None if the recording ends before the reply.
    """

    turns: list[tuple[str, str]] = field(default_factory=list)
    started: GenerationStarted | None = None
    prompt_tokens: int | None = None
    tokens: list[EmittedToken] = field(default_factory=list)
    reason: FinishReason | None = None


def replies_of(events: Iterable[Event]) -> list[RecordedReply]:
    """Return the replies of a recording."""
    found = [RecordedReply()]
    for event in events:
        if isinstance(event, TurnStarted | GenerationStarted) and found[-1].started is not None:
            found.append(RecordedReply())
        match event:
            case TurnStarted():
                found[-1].turns.append((event.role, event.text))
            case GenerationStarted():
                found[-1].started = event
            case PrefillProgress():
                found[-1].prompt_tokens = event.total
            case TokensKept() | DraftVerified() | PlainDecoded():
                found[-1].tokens += event.emit
            case GenerationFinished():
                found[-1].reason = event.reason
    return [reply for reply in found if reply.started is not None or reply.tokens]


def compare(a: Iterable[Event], b: Iterable[Event]) -> Verdict:
    """Return whether two recorded runs agree."""
    ours, theirs = replies_of(a), replies_of(b)
    obstacle = _obstacle(ours, theirs)
    if obstacle:
        return Verdict("incomparable", f"not compared: {obstacle}")
    metas = [reply.started for reply in ours if reply.started is not None]
    verdict = _compare_tokens(ours, theirs)
    if any(meta.lossless != _GREEDY for meta in metas):
        if verdict.kind != "identical":
            return Verdict("sampled", _MAY_DIFFER)
        verdict = Verdict(verdict.kind, verdict.line + _seed_words(ours, theirs))
    if any(reply.turns for reply in ours):
        return verdict
    tokens = ours[0].prompt_tokens
    return Verdict(verdict.kind, f"{verdict.line} (prompts not recorded, {tokens} tokens each)")


def _obstacle(ours: list[RecordedReply], theirs: list[RecordedReply]) -> str:
    """Return the first difference of prompts, targets or settings as text, or ""."""
    for lane, replies in (("A", ours), ("B", theirs)):
        if not any(reply.tokens for reply in replies):
            return f"{lane} holds no reply"
    for one, other in zip(ours, theirs, strict=False):
        found = _different_settings(one, other) or _different_prompts(one, other)
        if found:
            return found
    if len(ours) != len(theirs):
        return f"different prompts, A answers {len(ours)} and B {len(theirs)}"
    if ours[0].prompt_tokens != theirs[0].prompt_tokens:
        counts = f"{ours[0].prompt_tokens} and {theirs[0].prompt_tokens} tokens"
        return f"different prompts ({counts})"
    return ""


def _different_settings(one: RecordedReply, other: RecordedReply) -> str:
    ours, theirs = one.started, other.started
    if ours is None or theirs is None:
        return "a trace does not say which target wrote it"
    for name in ("target", "weights", "cache"):
        mine, yours = getattr(ours, name), getattr(theirs, name)
        if mine != yours:
            return f"different {name} ({_quoted(mine)} and {_quoted(yours)})"
    if (ours.lossless == _GREEDY) != (theirs.lossless == _GREEDY):
        return f"A is {_quoted(ours.lossless)} and B {_quoted(theirs.lossless)}"
    mine, yours = _settings(ours), _settings(theirs)
    changed = sorted(name for name in mine | yours if mine.get(name) != yours.get(name))
    return f"different settings ({', '.join(changed)})" if changed else ""


def _settings(started: GenerationStarted) -> dict[str, Any]:
    settings = dict(started.sampling)
    if started.lossless == _GREEDY:
        settings.pop("temperature", None)  # greedy text does not depend on its value
    return settings


def _different_prompts(one: RecordedReply, other: RecordedReply) -> str:
    for mine, yours in zip_longest(one.turns, other.turns):
        if mine != yours:
            texts = [_quoted(turn[1]) if turn is not None else "nothing" for turn in (mine, yours)]
            return f"different prompts ({texts[0]} and {texts[1]})"
    return ""


def _compare_tokens(ours: list[RecordedReply], theirs: list[RecordedReply]) -> Verdict:
    same = 0
    total = max(sum(len(r.tokens) for r in replies) for replies in (ours, theirs))
    for one, other in zip(ours, theirs, strict=True):
        ours_ids, theirs_ids = ([token.token for token in r.tokens] for r in (one, other))
        index = common_length(ours_ids, theirs_ids)
        same += index
        if index < min(len(ours_ids), len(theirs_ids)):
            return _difference(same, one.tokens[index], other.tokens[index])
        if len(ours_ids) != len(theirs_ids):
            return _early_end(same, one, other)
    return Verdict("identical", f"identical: {same} of {total} tokens")


def _seed_words(ours: list[RecordedReply], theirs: list[RecordedReply]) -> str:
    """Return the reason why sampled runs are the same, their common seeds, or ""."""
    seeds = [
        [reply.started.seed for reply in replies if reply.started is not None]
        for replies in (ours, theirs)
    ]
    return " (one seed)" if seeds[0] == seeds[1] else ""


def _difference(same: int, mine: EmittedToken | None, yours: EmittedToken | None) -> Verdict:
    names = [f'"{token_label(t.text)}"' if t is not None else "its end" for t in (mine, yours)]
    line = f"first difference at token {same + 1}: A has {names[0]}, B has {names[1]}"
    return Verdict("differs", line)


def _early_end(same: int, one: RecordedReply, other: RecordedReply) -> Verdict:
    """Return the verdict on two replies where the shorter one is a prefix of the longer one."""
    is_a = len(one.tokens) < len(other.tokens)
    short, long = (one, other) if is_a else (other, one)
    if short.reason == "stop":  # the end token is a decision of the model, a limit is not
        following = long.tokens[len(short.tokens)]
        return _difference(same, None if is_a else following, following if is_a else None)
    why = {"length": "at its length limit", "context": "with a full context"}
    ended = why.get(short.reason or "", "early")
    line = f"identical: {same} of {same} tokens, then {'A' if is_a else 'B'} ended {ended}"
    return Verdict("identical", line)


def _quoted(text: str) -> str:
    shown = safe_line(text)
    cut = shown if len(shown) <= _QUOTED_CELLS else shown[: _QUOTED_CELLS - 1] + "…"
    return f'"{cut}"'
