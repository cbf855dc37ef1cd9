"""The position of one reply in its grammar, and what may follow, there and after draft tokens.

A limit of reasoning is a constraint too: once it is reached, the closing mark alone may follow.

What may follow depends only on the emitted tokens. A matcher reads forward only, so each node of a
draft tree has its own, a copy of its parent's. (llguidance's `rollback` does not restore
everything.) If the text of the next tokens is certain, only the tokenizer's own tokens for it are
allowed; this, too, is a function of the earlier text.

Copies share a lexer, which stops for good if one of them finds a mask too costly. So each such mask
is tried once more, with a matcher that has read only the text.

A reply that starts inside its reasoning is free until the reasoning ends; the grammar applies to
its answer.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.errors import GrammarError
from mlxspec.text.reasoning import ChannelTracker

Path = tuple[int, ...]


@dataclass(frozen=True)
class Allowed:
    """What may follow a text: nothing if it is complete, and then the bits are ignored."""

    bits: NDArray[np.uint8]  # (V,) 1 at each allowed token of the tokenizer
    count: int  # number of allowed tokens; 0 if the grammar is at a dead end
    is_complete: bool = False
    fault: str = ""  # why the allowed tokens are not known, if they are not

    @property
    def forced(self) -> int | None:
        """The only allowed token; None if there is a choice, or no token is allowed."""
        return int(self.bits.argmax()) if self.count == 1 and not self.is_complete else None

    def has(self, token: int) -> bool:
        return not self.is_complete and token < len(self.bits) and bool(self.bits[token])

    def tokens(self) -> list[int]:
        return [] if self.is_complete else np.flatnonzero(self.bits).tolist()


class Constraint:
    """What a reply has to fit, and its text so far: a grammar, a limit of reasoning, or both."""

    def __init__(
        self,
        matcher: Callable[[], Any] | None,
        vocab_size: int,
        end_tokens: Iterable[int],
        channels: ChannelTracker,
    ) -> None:
        """Start a reply.

        `matcher` returns a matcher of llguidance at the start of a text; None without a grammar.
        `vocab_size` is that of the tokenizer. `end_tokens` end the reply where the grammar may end;
        without them it continues as long as anything may follow. `channels`, at the start of the
        reply, detect the end of the reasoning, or force it.
        """
        self._begin, self.has_grammar = matcher, matcher is not None
        self._end_tokens = sorted(token for token in end_tokens if token < vocab_size)
        self._vocab_size = vocab_size
        self._channels = copy(channels)
        self._read: list[int] = []  # emitted tokens to which the grammar applies
        # By the tokens that each has read after these.
        self._matchers: dict[Path, Any] = {} if matcher is None else {(): matcher()}
        self._found: dict[Path, Allowed | None] = {}  # by path below the emitted tokens
        everything = np.ones(vocab_size, np.uint8)
        self._free = Allowed(everything, vocab_size)
        self._over = Allowed(everything, 0, is_complete=True)

    def read(self, token: int, *, is_kept: bool = False) -> None:
        """Continue with an emitted token; raise GrammarError if nothing can follow it.

        ValueError says that the token is forbidden: a caller's sampler chose it. A kept token may
        be one of a longer reasoning than the limit allows.
        """
        is_closing = self._channels.forced is not None
        if is_kept and is_closing:
            self._found = {}
        elif self.allowed((token,)) is None:
            what = "think_tokens" if is_closing else "the grammar"
            raise ValueError(f"the sampler chose token {token}, which {what} forbids here")
        if not (self.has_grammar and self._channels.is_in_answer):
            self._channels.next(token)
        elif token not in self._end_tokens:
            self._matcher((token,))
            self._read.append(token)
            self._matchers = _below(self._matchers, token)
        self._found = _below(self._found, token)
        after = self.allowed(())
        if after is not None and not (after.count or after.is_complete):
            costly = f"what may follow is too costly to find ({after.fault})"
            raise GrammarError(
                f"the grammar cannot go on here, after {len(self._read)} tokens: "
                f"{costly if after.fault else 'no token of this model continues the text'}; "
                "give a simpler grammar"
            )

    @property
    def is_complete(self) -> bool:
        after = self.allowed(())
        return after is not None and after.is_complete

    def forbids(self, token: int) -> bool:
        """Return whether the grammar forbids a token that a caller wants to keep."""
        return self._channels.forced is None and self.allowed((token,)) is None

    def is_free_for(self, count: int) -> bool:
        """Return whether any token may follow, now and after any of the next `count` tokens."""
        return not self.has_grammar and self._channels.is_free_for(count)

    def is_free(self, after: Allowed) -> bool:
        """Return whether an `Allowed` of this constraint leaves the target's distribution alone."""
        return not self.has_grammar and after is self._free

    def allowed(self, path: Path) -> Allowed | None:
        """Return what may follow the emitted tokens and a path; None if the path is forbidden."""
        if path not in self._found:
            self._found[path] = self._after(path)
        return self._found[path]

    def forced_run(self, most: int, path: Path = ()) -> Path:
        """Return the tokens that certainly follow a path, at most `most`."""
        run: Path = ()
        while len(run) < most:
            after = self.allowed((*path, *run))
            if after is None or after.forced is None:
                break
            run = (*run, after.forced)
        return run

    def ending(self, most: int) -> Path:
        """Return a run of at most `most` certain tokens that completes the text; else ()."""
        run = self.forced_run(most)
        after = self.allowed(run)
        return run if after is not None and after.is_complete else ()

    # ---- the matcher -----------------------------------------------------------------------

    def _after(self, path: Path) -> Allowed | None:
        if path:
            before = self.allowed(path[:-1])
            if before is None or not before.has(path[-1]):
                return None
        channels, num_free = copy(self._channels), 0  # tokens to which the grammar does not apply
        while num_free < len(path) and not (self.has_grammar and channels.is_in_answer):
            channels.next(path[num_free])
            num_free += 1
        if channels.forced is not None:
            only = np.zeros(self._vocab_size, np.uint8)
            only[channels.forced] = 1
            return Allowed(only, 1)
        if not (self.has_grammar and channels.is_in_answer):
            return self._free
        if path and path[-1] in self._end_tokens and num_free < len(path):
            return self._over
        return self._at(path[num_free:])

    def _at(self, below: Path) -> Allowed:
        """Return what may follow tokens after those read; each of them must be allowed."""
        bits, fault = mask_of(self._matcher(below))
        if fault:
            self._restart()
            bits, fault = mask_of(self._matcher(below))
        if fault:  # after a fault the library allows only its own end token
            return Allowed(np.zeros(self._vocab_size, np.uint8), 0, fault=fault)
        may_end, bits = bits[self._vocab_size], bits[: self._vocab_size]
        if may_end and not bits.any():
            return self._over
        if may_end:
            bits[self._end_tokens] = 1
        return Allowed(bits, int(np.count_nonzero(bits)))

    def _matcher(self, below: Path) -> Any:
        """Return the matcher that has read these tokens after the emitted ones."""
        if below not in self._matchers:
            matcher = self._matcher(below[:-1]).deep_copy()
            matcher.try_consume_tokens([below[-1]])
            self._matchers[below] = matcher
        return self._matchers[below]

    def _restart(self) -> None:
        """Read the emitted tokens again as plain decoding reads them, with a mask for each."""
        assert self._begin, "without a grammar there is no matcher to restart"
        matcher = self._begin()
        for token in self._read:
            matcher.compute_bitmask()
            matcher.try_consume_tokens([token])
        self._matchers = {(): matcher}


def masked(
    constraint: Constraint, logits: mx.array, tokens: Sequence[int], parents: Sequence[int]
) -> mx.array:
    """Return logits with -inf at the tokens that the grammar forbids after each node.

    A forbidden node, or one below it, keeps its logits: no rule reaches it. So does a node after
    which nothing may follow: the reply ends there, complete or with an error. The (n_nodes, V)
    logits may be lazy; tokens beyond the tokenizer's are forbidden.
    """
    rows, paths = dict[int, Allowed](), list[Path]()
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        path = (*paths[parent], token) if 0 <= parent < len(paths) else ()
        paths.append(path)
        after = constraint.allowed(path)
        if after is not None and after.count and not constraint.is_free(after):
            rows[node] = after
    if not rows:
        return logits
    keeps = np.ones(logits.shape, np.bool_)
    for node, after in rows.items():
        width = min(keeps.shape[1], len(after.bits))
        keeps[node, :width], keeps[node, width:] = after.bits[:width], False
    return mx.where(mx.array(keeps), logits, -mx.inf)


def mask_of(matcher: Any) -> tuple[NDArray[np.uint8], str]:
    """Return the mask of a matcher of llguidance, one uint8 per token, and its fault or ""."""
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return bits, first_line(matcher.get_error()) if matcher.is_error() else ""


def first_line(error: str) -> str:
    """Return an error of llguidance in one line."""
    lines = [" ".join(line.split()) for line in error.splitlines()]
    return (
        "; ".join(line for line in lines if line and line != "<non-verbose/>")[:300] or "too large"
    )


def _below(found: dict[Path, Any], token: int) -> dict[Path, Any]:
    """Return the results below a token, by the path below it."""
    return {path[1:]: value for path, value in found.items() if path[:1] == (token,)}
