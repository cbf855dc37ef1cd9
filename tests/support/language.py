"""A finite language of letters, and what may follow in it: found in the list of its words."""

import re
from itertools import product

import numpy as np

from tests.support.tiny import ToyTokenizer
from tests.support.truth import exact_distribution


class Language:
    """The words that a regular expression matches, over the first letters of the alphabet.

    Attributes:
        words: The words as tuples of tokens.
        pattern: The expression.
    """

    def __init__(self, pattern, num_letters, most, *, end=None):
        """List all words of at most `most` letters; `end` is a token that ends a reply."""
        letters = "".join(chr(ord("a") + index) for index in range(num_letters))
        texts = ("".join(t) for n in range(1, most + 1) for t in product(letters, repeat=n))
        self.pattern, self.end = pattern, end
        self.words = {
            tuple(ord(letter) - ord("a") for letter in text)
            for text in texts
            if re.fullmatch(pattern, text)
        }
        self._starts = {word[:length] for word in self.words for length in range(len(word) + 1)}

    def following(self, reply):
        """The tokens that may follow a reply; none where it is over."""
        if self.end is not None and reply[-1:] == (self.end,):
            return set()
        last = max(map(max, self.words))
        found = {token for token in range(last + 1) if (*reply, token) in self._starts}
        may_end = self.end is not None and reply in self.words and found
        return found | ({self.end} if may_end else set())

    def distribution(self, logits, sampling, context, reply):
        """The exact distribution after a reply, from the logits of the model."""
        masked = np.full(len(logits), -np.inf)
        allowed = sorted(self.following(reply))
        masked[allowed] = logits[allowed]
        return exact_distribution(masked, sampling, context, reply)

    def joint(self, target, prompt, sampling):
        """{reply: probability} of every whole reply."""
        whole, open_ = {}, {(): 1.0}
        while open_:
            reply, prob = open_.popitem()
            allowed = self.following(reply)
            if not allowed:
                whole[reply] = prob
                continue
            text = (*prompt, *reply)
            probs = self.distribution(target.logits(text), sampling, text, reply)
            open_ |= {(*reply, token): prob * probs[token] for token in allowed}
        return whole


class EndedTokenizer(ToyTokenizer):
    """Letters, and a last token without text that ends a reply."""

    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.eos_token_ids = (vocab_size - 1,)

    def token_bytes(self, token):
        return b"" if token == self.vocab_size - 1 else super().token_bytes(token)
