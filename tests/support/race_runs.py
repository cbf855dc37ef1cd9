"""Runs for races in tests: a recorded run without its drafts, and others."""

from dataclasses import replace

from mlxspec.trace.events import (
    DraftProposed,
    DraftVerified,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
)


def decoded_plainly(events, seconds_per_token=0.05):
    """The same tokens, one per plain round with its duration: the baseline of a race."""
    now, r = 0.0, 0
    made = []
    for event in events:
        if isinstance(event, GenerationStarted):
            event, now, r = replace(event, drafter="none"), 0.0, 0
        if isinstance(event, DraftProposed):
            continue
        if isinstance(event, DraftVerified | PlainDecoded):
            for token in event.emit:
                now, r = now + seconds_per_token, r + 1
                token = replace(token, kind="plain", draft_prob=None)
                made.append(PlainDecoded(r, now, (token,), seconds_per_token * 1e3, event.context))
            continue
        if isinstance(event, GenerationFinished):
            event = replace(event, ts=now)
        elif hasattr(event, "ts"):
            now = event.ts
        made.append(event)
    return made


def with_meta(events, **changes):
    """The same run under other models or settings."""
    return [replace(e, **changes) if isinstance(e, GenerationStarted) else e for e in events]


def with_token(events, place, token, text):
    """The same run with another token at index `place` of the reply."""
    made, seen = [], 0
    for event in events:
        if isinstance(event, DraftVerified | PlainDecoded):
            emit = list(event.emit)
            if seen <= place < seen + len(emit):
                emit[place - seen] = replace(emit[place - seen], token=token, text=text)
            seen += len(emit)
            event = replace(event, emit=tuple(emit))
        made.append(event)
    return made


def ended_after(events, num_tokens, reason):
    """The first tokens of a run of plain rounds with an end reason; None for no end."""
    made, seen = [], 0
    for event in events:
        if isinstance(event, PlainDecoded):
            seen += 1
            if seen > num_tokens:
                break
        made.append(event)
    return made if reason is None else [*made, GenerationFinished(1e3, reason)]
