"""Walks below a text that fits a grammar, and the masks on them, compared with fresh matchers'."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from mlxspec.grammar.constraint import Constraint
from mlxspec.text.reasoning import ChannelTracker

_ENDING_SIGNS = '"}],'  # likelier than others, or random strings would never end


@dataclass
class Walked:
    """How many masks were compared, and the texts after which one differs."""

    masks: int
    different: list[list[int]]


def walked(grammars, grammar, end, chance, *, length, num_looks):
    """Walk below each beginning of a random text, with branches, steps back and forced runs."""
    truth = Truth(type(grammars)(grammars.tokenizer).matcher(grammar), grammars.tokenizer, end)
    text = truth.text(chance, length)
    channels = ChannelTracker(None, [0], grammars.tokenizer.token_bytes)
    constraint = Constraint(
        grammars.matchers(grammar), grammars.tokenizer.vocab_size, (end,), channels
    )
    found = Walked(0, [])
    for num_read, token in enumerate(text):
        path = ()
        for _ in range(num_looks):
            after = constraint.allowed(path)
            found.masks += 1
            if not truth.is_same(after, [*text[:num_read], *path]):
                found.different.append([*text[:num_read], *path])
            path = _next(constraint, path, text[num_read:], chance)
        constraint.forced_run(8)
        if constraint.allowed((token,)) is None:
            found.different.append(text[: num_read + 1])
            break
        constraint.read(token)
    return found


def _next(constraint, path, rest, chance):
    """Return a path to look at after another one: up to eight tokens below a step back from it."""
    path = path[: chance.randrange(len(path) + 1)]
    for _ in range(chance.randrange(1, 9)):
        after = constraint.allowed(path)
        if after is None:
            return ()
        tokens = [] if after.is_complete else np.flatnonzero(after.bits)
        on_text = list(path) == rest[: len(path)] and len(path) < len(rest)
        if on_text and chance.random() < 0.5:
            path = (*path, rest[len(path)])
        elif len(tokens):
            path = (*path, int(chance.choice(tokens)))
    return path


class Truth:
    """What may follow a text, by a copy of a matcher that reads all of it at once."""

    def __init__(self, matcher, tokenizer, end):
        self.matcher, self.tokenizer, self.end = matcher, tokenizer, end

    def following(self, tokens):
        """Return 1 at each token that may follow a text, the end among them; after the end, none.

        None for a text that is forbidden itself.
        """
        if self.end in tokens:
            return np.zeros(self.tokenizer.vocab_size, np.uint8)
        fresh = self.matcher.deep_copy()
        if fresh.try_consume_tokens(tokens) < len(tokens):
            return None
        return self._allowed(fresh)

    def _allowed(self, matcher):
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        assert not matcher.is_error(), matcher.get_error()
        found, size = np.unpackbits(mask, bitorder="little"), self.tokenizer.vocab_size
        found, may_end = found[:size].copy(), found[size]
        found[self.end] |= may_end and found.any()
        return found

    def is_same(self, after, tokens):
        """Return whether this may follow a text, and nothing else."""
        found = self.following(tokens)
        if after is None or found is None:
            return False
        return not found.any() if after.is_complete else np.array_equal(after.bits, found)

    def text(self, chance, length):
        """Return a random text as tokens; one that is too long is cut."""
        matcher, tokens, ends = self.matcher.deep_copy(), [], _ending(self.tokenizer)
        while len(tokens) < length:
            allowed = self._allowed(matcher)
            allowed[self.end] = 0
            few = allowed & ends
            chosen = few if few.any() and chance.random() < 0.4 else allowed
            if not chosen.any():
                break
            tokens.append(int(chance.choice(np.flatnonzero(chosen))))
            matcher.try_consume_tokens(tokens[-1:])
        return tokens


@cache
def _ending(tokenizer):
    """Return 1 at each token of ending signs alone."""
    texts = (tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size))
    signs = set(_ENDING_SIGNS.encode())
    return np.array([bool(text) and set(text) <= signs for text in texts], np.uint8)
