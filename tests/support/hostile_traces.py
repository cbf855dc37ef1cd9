"""A hostile recording: every name and every text in it is an attack.

It is a valid trace: `read_trace` accepts it. Its content must not be trusted.
"""

from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)

CONTROLS = "\x1b[31mred\x1b]0;title\x07\x00\x9b2J\x7f\r\u202e\u2028"
MARKUP = "</style></svg><script>alert(1)</script>[b]x[/b]|`*"


def events(evil=CONTROLS + MARKUP, *, name=None):
    """Two replies, a drafted and a failed one, with `evil` for every text and `name` for names."""
    name = evil if name is None else name
    started = GenerationStarted(
        target=name,
        drafter=name,
        device=evil,
        blas=evil,
        weights=evil,
        cache=evil,
        lossless=evil,
        sampling={evil: evil, "temperature": evil},
        versions={evil: evil},
        context_length=100,
    )
    nodes = (DraftNode(1, 0, 5, evil, 0.6, name), DraftNode(2, 0, 6, evil, 0.3, name))
    kept = (EmittedToken(5, evil, "accepted", 0.5, 0.6), EmittedToken(7, evil, "bonus", 0.9))
    lost = (EmittedToken(8, evil, "corrected", 0.5),)
    yield TurnStarted("system", evil)
    yield TurnStarted("user", evil)
    yield started
    yield PrefillProgress(0.1, 5, 10)
    yield DraftProposed(1, 0.2, 1, nodes, 1.0)
    yield DraftVerified(1, 0.3, (1,), kept, 40.0, 1, 10)
    yield DraftProposed(2, 0.4, 1, nodes, 1.0)
    yield DraftVerified(2, 0.5, (), lost, 40.0, 2, 12)
    yield PlainDecoded(3, 0.6, (EmittedToken(9, evil, "plain", 0.5),), 40.0, 13)
    yield GenerationFinished(1.0, "stop", text=evil, stats={evil: evil})
    yield CostMeasured(1.5, 12, (1, 2), (10.0, 11.0))
    yield TurnStarted(name, evil)
    yield started
    yield DraftProposed(1, 0.2, 1, nodes, 1.0)
    yield DraftVerified(1, 0.3, (1,), kept, 40.0, 1, 10)
    yield GenerationFailed(0.7, evil, evil)
