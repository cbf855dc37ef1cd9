"""Replies with rounds of both kinds, whose speed against plain decoding is known."""

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)

STARTED = GenerationStarted("t", "d")


def paired(num_rounds, *, slower=1.0, num_tokens=2, token=1, reason="stop", plain_ms=20.0):
    """A reply of drafted rounds of 30 ms, and a plain one of 20 ms in every eight."""
    yield from (TurnStarted("user", "x"), STARTED, PrefillProgress(1.0, 5, 5))
    now = 1.0
    for r in range(1, num_rounds + 1):
        if r % 8 == 4:
            now += plain_ms / 1e3 * slower
            word = EmittedToken(token, " a", "plain")
            yield PlainDecoded(r, now, (word,), plain_ms * slower, 100)
            continue
        now += 0.030 * slower
        words = (EmittedToken(token, " a", "accepted"),) * num_tokens
        yield DraftProposed(r, now, 1, (DraftNode(1, 0, 1, " a", 0.5, "x"),), 1.0)
        yield DraftVerified(r, now, (1,), words, 9.0, 0, 100)
    yield GenerationFinished(now, reason)


def true_ratio(num_rounds, num_tokens=2):
    """The speed of such a reply over that of plain decoding: 1.30 or, of one token, 0.70."""
    num_plain = sum(r % 8 == 4 for r in range(1, num_rounds + 1))
    num_drafted = num_rounds - num_plain
    took = num_plain * 20 + num_drafted * 30
    return (num_plain + num_tokens * num_drafted) * 20 / took
