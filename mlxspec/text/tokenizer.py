"""A model's tokenizer: text to ids, ids to bytes, messages to a prompt.

A token may be a part of a character, so a reply is decoded from the joined bytes of its tokens, in
the two schemes in use: byte-level BPE, where every character of a token is a byte, except in added
tokens, and SentencePiece, where ▁ is a space and <0x41> a byte.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mlxspec.errors import UnsupportedModelError
from mlxspec.text.chat_template import ChatTemplate, Message
from mlxspec.text.prompt import check_utf8
from mlxspec.text.reasoning import ReasoningMarks

# The most that a table's context can pack; real vocabularies have a tenth of this.
MAX_TOKENS = 1 << 21
_SPACE_MARK = "\u2581"
_BYTE_OF: dict[str, int] = {char: byte for byte, char in bytes_to_unicode().items()}


class Tokenizer:
    """A tokenizer of transformers, `wrapped`, and the tokens that end a text or a turn."""

    def __init__(self, wrapped: PreTrainedTokenizerFast, eos_token_ids: Iterable[int] = ()) -> None:
        """Wrap a fast tokenizer; its own end token is added to those of the model's config."""
        self.wrapped = wrapped
        self.chat_template = ChatTemplate(wrapped)
        self._tokens = _tokens_of(wrapped)
        own = wrapped.eos_token_id
        self.eos_token_ids = tuple(sorted({*eos_token_ids, *([] if own is None else [own])}))
        self._is_byte_level = _is_byte_level(wrapped)
        self._special = set(wrapped.all_special_ids) | {
            token for token, added in wrapped.added_tokens_decoder.items() if added.special
        }

    @property
    def vocab_size(self) -> int:
        """Number of tokens, including special ones; the model's vocabulary may be padded."""
        return len(self._tokens)

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be turned into a prompt."""
        return self.wrapped.chat_template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text, with a start token before them if the model needs one.

        A text that starts with the start token does not get another one. A lone surrogate, as from
        bytes that are not UTF-8, is a ValueError.
        """
        check_utf8(text)
        tokens = list(self.wrapped.encode(text, add_special_tokens=add_special_tokens))
        starts = self._starts if add_special_tokens else []
        if starts and tokens[len(starts) : 2 * len(starts)] == starts:
            return list(self.wrapped.encode(text, add_special_tokens=False))
        return tokens

    def decode(self, tokens: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of tokens, special ones by name or left out; broken bytes are U+FFFD."""
        pieces = (
            self._tokens[token].encode()
            if keep_special and token in self._special
            else self.token_bytes(token)
            for token in tokens
        )
        return b"".join(pieces).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token in a text; b"" for special and for unknown tokens."""
        if token in self._special or not 0 <= token < self.vocab_size:
            return b""
        text = self._tokens[token]
        if self._is_byte_level:
            if token not in self._added and all(char in _BYTE_OF for char in text):
                return bytes(_BYTE_OF[char] for char in text)
            return text.encode()
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return bytes([int(text[3:5], 16)])
        return text.replace(_SPACE_MARK, " ").encode()

    def apply_chat_template(self, messages: Sequence[Message], **how: Any) -> list[int]:
        """Return the tokens of a conversation; see `ChatTemplate.render`."""
        return self.encode(self.render_chat(messages, **how), add_special_tokens=False)

    def render_chat(self, messages: Sequence[Message], **how: Any) -> str:
        """Return the text of a conversation; see `ChatTemplate.render`."""
        return self.chat_template.render(messages, **how)

    def same_as(self, other: "Tokenizer") -> bool:
        """Return whether ids mean the same in both; one may have more added tokens at the end."""
        shared = min(len(self._tokens), len(other._tokens))
        longer = max(self._tokens, other._tokens, key=len)
        added = max(self, other, key=lambda tokenizer: tokenizer.vocab_size)._added
        return self._tokens[:shared] == other._tokens[:shared] and all(
            token in added or not text for token, text in enumerate(longer[shared:], shared)
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all tokens in order: equal if ids mean the same."""
        return hashlib.sha256(json.dumps(self._tokens).encode()).hexdigest()

    @cached_property
    def reasoning(self) -> ReasoningMarks | None:
        """The marks around the reasoning of a reply; None for a model that does not reason."""
        encode = partial(self.encode, add_special_tokens=False)
        return ReasoningMarks.of(self.wrapped.get_vocab(), encode)

    @cached_property
    def special(self) -> Mapping[str, int]:
        """The special tokens by their names; in a text they have no bytes."""
        tokens = sorted(token for token in self._special if token < self.vocab_size)
        return {self._tokens[token]: token for token in tokens if self._tokens[token]}

    @cached_property
    def _starts(self) -> list[int]:
        bare, whole = (self.wrapped.encode("a", add_special_tokens=adds) for adds in (False, True))
        return list(whole[: whole.index(bare[0])]) if bare else []

    @cached_property
    def _added(self) -> set[int]:
        return set(self.wrapped.added_tokens_decoder)


def _tokens_of(wrapped: PreTrainedTokenizerFast) -> list[str]:
    """Return the text of every token, "" for ids without one."""
    vocabulary: dict[str, int] = wrapped.get_vocab()
    last = max(vocabulary.values(), default=-1)
    if last >= MAX_TOKENS:
        raise UnsupportedModelError(
            f"the tokenizer has a token with id {last}; at most {MAX_TOKENS} tokens are "
            "allowed: download the model again"
        )
    tokens = [""] * (last + 1)
    for text, token in vocabulary.items():
        tokens[token] = text
    return tokens


def _is_byte_level(wrapped: PreTrainedTokenizerFast) -> bool:
    """Return True for byte-level BPE, False for SentencePiece: the way it splits text decides."""
    described = json.loads(wrapped.backend_tokenizer.to_str())
    for part in ("pre_tokenizer", "normalizer", "decoder"):
        kinds = _kinds(described[part])
        if "ByteLevel" in kinds:
            return True
        if "ByteFallback" in kinds or "Metaspace" in kinds:
            return False
    if described["model"].get("byte_fallback"):
        return False
    raise UnsupportedModelError(
        f"the tokenizer decodes by {', '.join(kinds) or None}; byte-level BPE and SentencePiece "
        "are supported: choose a model with one of these"
    )


def _kinds(part: Mapping[str, Any] | None) -> list[str]:
    """Return the types of a part of a tokenizer.json, and of its steps if it is a sequence."""
    steps = [value for value in (part or {}).values() if isinstance(value, list)]
    inner = [kind for step in steps for one in step for kind in _kinds(one)]
    return [part["type"], *inner] if part else inner
