"""Walks below a text that fits a grammar, and the masks on them, compared with fresh matchers'."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from mlxspec.grammar.constraint import Constraint
from mlxspec.text.reasoning import ChannelTracker

_ENDING_SIGNS = '"}],'  # likelier than others, or random strings would never end


@dataclass
class Walked:
    """What the walks of one grammar showed.

    Attributes:
        masks: Number of masks that were compared.
        different: The texts, as tokens, after which a mask differs from a fresh matcher's.
    """

    masks: int
    different: list[list[int]]


def walked(grammars, grammar, end, chance, *, length, num_looks):
    """Walk below one random text of a grammar, with branches, steps back and forced runs.

    Args:
        grammars: Compiles the grammar; the truth is compiled apart from it.
        grammar: The grammar.
        end: A token without text that may stand where the text may end.
        chance: Random numbers.
        length: Most tokens of the text.
        num_looks: Masks that are looked at between two tokens of the text.
    """
    truth = Truth(type(grammars)(grammars.tokenizer).matcher(grammar), grammars.tokenizer, end)
    return walked_below(truth.text(chance, length), truth, grammars, grammar, chance, num_looks)


def walked_below(text, truth, grammars, grammar, chance, num_looks):
    """Walk below each beginning of a text."""
    end = truth.end
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
        size = self.tokenizer.vocab_size
        if self.end in tokens:
            return np.zeros(size, np.uint8)
        fresh = self.matcher.deep_copy()
        if fresh.try_consume_tokens(tokens) < len(tokens):
            return None
        mask = np.frombuffer(fresh.compute_bitmask(), np.uint8)
        assert not fresh.is_error(), fresh.get_error()
        found = np.unpackbits(mask, bitorder="little")
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
        tokens, ends = [], _ending(self.tokenizer)
        while len(tokens) < length:
            allowed = self.following(tokens)
            allowed[self.end] = 0
            few = allowed & ends
            chosen = few if few.any() and chance.random() < 0.4 else allowed
            if not chosen.any():
                break
            tokens.append(int(chance.choice(np.flatnonzero(chosen))))
        return tokens


@cache
def _ending(tokenizer):
    """Return 1 at each token of ending signs alone."""
    texts = (tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size))
    signs = set(_ENDING_SIGNS.encode())
    return np.array([bool(text) and set(text) <= signs for text in texts], np.uint8)
