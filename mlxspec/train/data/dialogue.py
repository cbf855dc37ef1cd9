"""Make one conversation of a model with itself, as a task for `making.run_tasks`.

The user's text is sampled, decoded, and encoded again inside the chat template, because that is how
the model reads it in use. Loops are dropped: a drafter would learn little else.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, TypeVar

import numpy as np

from mlxspec.loading import Tokenizer
from mlxspec.train.data.corpus import GREEDY, Conversation, DataSettings
from mlxspec.train.data.prompts import find_user_frame

T = TypeVar("T")
_LOOK_FOR_LOOPS = 32  # tokens between two searches for a loop in an unfinished reply
_BROKEN = "\ufffd"  # stands for bytes that are not UTF-8

Fault = Literal[
    "empty", "unfinished", "loop", "special token", "broken text", "too long", "rewritten", "double"
]
"""Why a conversation is dropped. "unfinished": the user's turn did not end; "rewritten": the chat
template changes earlier turns; "double": the corpus already holds the conversation.
"""

TAIL, MAX_PERIOD = 64, 24
MIN_DISTINCT = 0.55
_N = 4  # of the n-grams that should be distinct


@dataclass(frozen=True)
class Request:
    """A request for a reply, whose samples do not depend on other requests."""

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    is_over: Callable[[Sequence[int]], bool]  # called with the reply after each token


Task = Generator[Request, list[int], T]
"""Yields requests, is sent the replies, returns its result."""


class DroppedError(Exception):
    """A filter drops this conversation because of `fault`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


def has_periodic_tail(tokens: Sequence[int]) -> bool:
    """Return whether the last 64 tokens repeat with a period of 24 or less; False for fewer."""
    tail = list(tokens[-TAIL:])
    if len(tail) < TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, MAX_PERIOD + 1))


def check_reply(tokens: Sequence[int], special: frozenset[int]) -> None:
    """Raise `DroppedError` if a reply, without its end, is empty, loops or has a special token."""
    if not tokens:
        raise DroppedError("empty")
    if not special.isdisjoint(tokens):
        raise DroppedError("special token")
    grams = list(zip(*(tokens[start:] for start in range(_N)), strict=False))
    if has_periodic_tail(tokens) or len(set(grams)) < MIN_DISTINCT * len(grams):
        raise DroppedError("loop")


@dataclass
class _Transcript:
    """The conversation so far: its messages, rendered text, tokens, and who wrote each token."""

    messages: list[dict[str, str]] = field(default_factory=list)
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)


class DialogueWriter:
    """Makes tasks that write one conversation each, of at most `context` tokens."""

    def __init__(
        self, tokenizer: Tokenizer, settings: DataSettings, context: int, vocab_size: int
    ) -> None:
        self._tokenizer, self._settings, self._context = tokenizer, settings, context
        # ids of the model's head beyond the tokenizer's count as special, too
        self._special = frozenset(t for t in range(vocab_size) if not tokenizer.token_bytes(t))
        self._eos = frozenset(tokenizer.eos_token_ids)

    def write(self, turns: Sequence[str], rng: np.random.Generator) -> Task[Conversation | Fault]:
        """Write a conversation, or return the fault for which it is dropped.

        The model writes the user turns that `turns` lacks. A fault after an answer only ends it.
        """
        transcript = _Transcript()
        has_second = rng.random() < self._settings.second_turn_share
        try:
            for index in range(max(len(turns), 2 if has_second else 1)):
                if index < len(turns):
                    text = turns[index].strip()
                else:
                    text = yield from self._ask(transcript, rng)
                is_ended = yield from self._answer(transcript, text, rng)
                if not is_ended:
                    break
        except DroppedError as dropped:
            if not transcript.tokens:
                return dropped.fault
        tokens, mask = np.array(transcript.tokens, np.int32), np.array(transcript.mask, np.uint8)
        return Conversation(tokens, mask, is_heldout=False)

    def _ask(
        self, transcript: _Transcript, rng: np.random.Generator
    ) -> Generator[Request, list[int], str]:
        """Let the model write the next user turn; raises `DroppedError` if it is not valid."""
        frame = find_user_frame(self._tokenizer, transcript.messages)
        ending = self._turn_ending(frame.footer)

        def is_over(reply: Sequence[int]) -> bool:
            if isinstance(ending, str) and ending in self._tokenizer.decode(reply):
                return True
            return self._is_over(reply)

        prompt = [*transcript.tokens, *self._added(transcript, frame.header)]
        self._check_room(len(prompt) + self._settings.max_prompt_tokens)
        limit = self._settings.max_prompt_tokens
        reply = yield Request(prompt, limit, 1.0, int(rng.integers(2**63)), is_over)
        return self._said(reply, ending)

    def _turn_ending(self, footer: str) -> int | str:
        """Return the end of a user turn: a special token or, in some templates, a word."""
        tokens = self._tokenizer.encode(footer, add_special_tokens=False)
        text = list(takewhile(lambda token: token not in self._special, tokens))
        words = self._tokenizer.decode(text).split()
        return words[0] if words else tokens[len(text)]

    def _said(self, reply: list[int], ending: int | str) -> str:
        """Return the text of a user turn up to its end; raises `DroppedError` if it is faulty."""
        if isinstance(ending, str):
            check_reply(reply, self._special)
            text, found, _ = self._tokenizer.decode(reply).partition(ending)
            is_ended = bool(found)
        else:
            is_ended = reply[-1] == ending
            body = reply[:-1] if is_ended else reply
            check_reply(body, self._special)
            text = self._tokenizer.decode(body)
        if not is_ended:
            raise DroppedError("unfinished")
        return text.strip()

    def _answer(
        self, transcript: _Transcript, text: str, rng: np.random.Generator
    ) -> Generator[Request, list[int], bool]:
        """Add a user turn and the model's answer; return whether the answer ended by itself."""
        if not text:
            raise DroppedError("empty")
        if _BROKEN in text:
            raise DroppedError("broken text")
        turn = {"role": "user", "content": text}
        if not self._special.isdisjoint(self._tokenizer.encode(text, add_special_tokens=False)):
            raise DroppedError("special token")
        full = self._tokenizer.render_chat([*transcript.messages, turn])
        prompt = self._added(transcript, full)
        before = [*transcript.tokens, *prompt]
        self._check_room(len(before) + self._settings.max_answer_tokens)
        limit, kind, temperature = self._settings.max_answer_tokens, GREEDY, 0.0
        if rng.random() >= self._settings.greedy_share:
            index = int(rng.integers(len(self._settings.temperatures)))
            kind, temperature = GREEDY + 1 + index, self._settings.temperatures[index]
        reply = yield Request(before, limit, temperature, int(rng.integers(2**63)), self._is_over)
        is_ended = reply[-1] in self._eos
        body = reply[:-1] if is_ended else reply
        check_reply(body, self._special)
        answer = {"role": "assistant", "content": self._tokenizer.decode(body)}
        transcript.messages += [turn, answer]
        transcript.text = full + self._tokenizer.decode(reply, keep_special=True)
        transcript.tokens = [*before, *reply]
        transcript.mask += [0] * len(prompt) + [kind] * len(reply)
        return is_ended

    def _added(self, transcript: _Transcript, full: str) -> list[int]:
        """Return the tokens of what the template adds to the conversation so far."""
        if not full.startswith(transcript.text):
            raise DroppedError("rewritten")
        added = full[len(transcript.text) :]
        return self._tokenizer.encode(added, add_special_tokens=False)

    def _check_room(self, length: int) -> None:
        if length > self._context:
            raise DroppedError("too long")

    def _is_over(self, reply: Sequence[int]) -> bool:
        """Return whether a reply ended, or has a loop and would be dropped in any case."""
        is_looping = len(reply) % _LOOK_FOR_LOOPS == 0 and has_periodic_tail(reply)
        return reply[-1] in self._special or is_looping
