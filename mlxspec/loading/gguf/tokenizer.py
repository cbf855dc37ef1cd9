"""The tokenizer of a GGUF file, built from the vocabulary in its metadata.

A file with byte-level BPE ("gpt2") only names the rule that splits text before the merges, so the
rules of the supported families are written here. A SentencePiece file ("llama") holds pieces and
scores.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from mlxspec.errors import UnsupportedModelError

_PREFIX = "tokenizer.ggml."
_SPACE = "\u2581"
_LONGEST = 256  # longest piece that merges can give, in characters; real pieces have up to 16
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_END_TOKENS = {
    *("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"),
    *("<end_of_turn>", "<|end|>", "[|endofturn|]"),  # Gemma, Phi-3, EXAONE
}
# Where `<|return|>` is a token, as in gpt-oss, `<|end|>` ends a part of a turn only.
_TURN_ENDS = {"<|return|>", "<|call|>", "<|endoftext|>"}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_CASED = (  # capitals start a word, and a contraction stays with its word
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    + _ENDING
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    + _ENDING
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2, _SMOLLM = ("gpt-2", "exaone4"), ("smollm", "starcoder", "refact")
_LLAMA3 = ("llama-bpe", "llama3")  # these do not split a word that is a token
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_RULES = {
    **dict.fromkeys((*_LLAMA3, "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _WORDS % 3),
    "gpt-4o": _CASED,
    **dict.fromkeys(_QWEN2, _WORDS % 1),
}
_KNOWN = (*_GPT2, *_SMOLLM, *_RULES)


def _splitter(name: str) -> pre_tokenizers.PreTokenizer:
    """Return what splits text before the merges, for one of the names in `_KNOWN`."""
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in _GPT2:
        return whole
    if name in _SMOLLM:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, whole])
    split = pre_tokenizers.Split(Regex(_RULES[name]), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, to_bytes])


def eos_token_ids(metadata: dict[str, Any]) -> list[int]:
    """Return the tokens that end a text or a turn: stated ones, and those known by their text."""
    found = [metadata.get(_PREFIX + key) for key in ("eos_token_id", "eot_token_id")]
    tokens, types = (metadata.get(_PREFIX + key) for key in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not isinstance(types, list):
        tokens, types = [], []  # the constructor of the tokenizer refuses these
    ends = _TURN_ENDS if "<|return|>" in tokens else _END_TOKENS
    for index, (token, kind) in enumerate(zip(tokens, types, strict=False)):
        if kind == _CONTROL and token in ends:
            found.append(index)
    return sorted({token for token in found if isinstance(token, int)})


def check_tokenizer_kind(path: Path, metadata: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for a tokenizer of a kind that cannot be built."""
    kind = metadata.get(_PREFIX + "model")
    splitter = str(metadata.get(_PREFIX + "pre"))
    if kind != "llama" and (kind != "gpt2" or splitter not in _KNOWN):
        raise UnsupportedModelError(
            f"{path} has a tokenizer of the kind {kind!r} that splits text by {splitter!r}; kind "
            f"'llama', or 'gpt2' with {', '.join(_KNOWN)}, can be used: use a folder of "
            "the model"
        )


def tokenizer_from_gguf(path: Path, metadata: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Return the tokenizer that a GGUF file describes."""
    check_tokenizer_kind(path, metadata)
    splitter = str(metadata.get(_PREFIX + "pre"))
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise UnsupportedModelError(
            f"{path} has a chat template that is not text: download it again"
        )
    vocabulary = _Vocabulary(path, metadata)
    if metadata.get(_PREFIX + "model") == "llama":
        space_first = metadata.get(_PREFIX + "add_space_prefix", True)
        backend, starts = _sentencepiece(vocabulary, space_first=space_first), True
    else:
        backend, starts = _byte_level(vocabulary, splitter), splitter in _LLAMA3
    backend.add_special_tokens(vocabulary.added(_CONTROL))
    backend.add_tokens(vocabulary.added(_USER_DEFINED))
    start = vocabulary.token("bos_token_id")
    if start is not None and metadata.get(_PREFIX + "add_bos_token", starts):
        first = {"id": "start", "ids": [vocabulary.ids[start]], "tokens": [start]}
        backend.post_processor = TemplateProcessing(single="start $A", special_tokens=[first])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=start,
        eos_token=vocabulary.token("eos_token_id"),
        pad_token=vocabulary.token("padding_token_id"),
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def _byte_level(vocabulary: "_Vocabulary", splitter: str) -> Tokenizer:
    keeps_words = splitter in _LLAMA3
    backend = Tokenizer(BPE(vocabulary.ids, vocabulary.merges(), ignore_merges=keeps_words))
    backend.pre_tokenizer = _splitter(splitter)
    backend.decoder = decoders.ByteLevel()
    if splitter in _QWEN2:
        backend.normalizer = normalizers.NFC()
    return backend


def _sentencepiece(vocabulary: "_Vocabulary", *, space_first: bool) -> Tokenizer:
    """Return the tokenizer of pieces, whose scores give the merges of byte-pair encoding.

    Bytes without a piece become <0x00> ... <0xFF>. `space_first` adds a space before the text.
    """
    ids, unknown = vocabulary.ids, vocabulary.token("unknown_token_id")
    merges = _merges(vocabulary.scores(), ids)
    backend = Tokenizer(BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    to_pieces: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    to_text = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if space_first:
        to_pieces.insert(0, normalizers.Prepend(_SPACE))
        to_text.append(decoders.Strip(content=" ", left=1))
    backend.normalizer = normalizers.Sequence(to_pieces)
    backend.decoder = decoders.Sequence(to_text)
    return backend


def _merges(scores: Mapping[str, float], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    found = []
    for piece, score in scores.items():
        for cut in range(1, len(piece) if len(piece) <= _LONGEST else 1):
            left, right = piece[:cut], piece[cut:]
            if left in scores and right in scores:
                found.append((-score, ids[left], ids[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


class _Vocabulary:
    """The token table of a file; `ids` leaves out unused tokens, which only pad the embedding."""

    def __init__(self, path: Path, metadata: dict[str, Any]) -> None:
        self._path = path
        self._metadata = metadata
        self._tokens: list[str] = self._list("tokens", [], str)
        self._types: list[int] = self._list("token_type", [_NORMAL] * len(self._tokens), int)
        if not self._tokens:
            raise UnsupportedModelError(f"{path} holds no tokens: use a folder of the model")
        self._check_length("token_type", self._types)
        self._kinds = list(zip(self._tokens, self._types, strict=True))
        self.ids = {token: i for i, (token, kind) in enumerate(self._kinds) if kind != _UNUSED}

    def merges(self) -> list[tuple[str, str]]:
        """Return the merges whose parts and result are tokens."""
        pairs = (merge.partition(" ") for merge in self._list("merges", [], str))
        known = self.ids
        return [(a, b) for a, _, b in pairs if a in known and b in known and a + b in known]

    def scores(self) -> dict[str, float]:
        """Return the score of every token that is plain text."""
        scores = self._list("scores", [], float)
        self._check_length("scores", scores)
        plain = (_NORMAL, _USER_DEFINED)
        rows = zip(self._kinds, scores, strict=True)
        return {token: score for (token, kind), score in rows if kind in plain}

    def added(self, token_type: int) -> list[AddedToken]:
        """Return the tokens of a type as added tokens, which are never split."""
        return [
            AddedToken(token, special=token_type == _CONTROL, normalized=False)
            for token, kind in self._kinds
            if kind == token_type
        ]

    def token(self, key: str) -> str | None:
        """Return the token that a metadata key points to, or None."""
        index = self._metadata.get(_PREFIX + key)
        if not isinstance(index, int) or not 0 <= index < len(self._tokens):
            return None
        return self._tokens[index] if self._tokens[index] in self.ids else None

    def _list(self, key: str, default: list[Any], item: type) -> list[Any]:
        values = self._metadata.get(_PREFIX + key, default)
        if not isinstance(values, list) or not all(isinstance(value, item) for value in values):
            raise UnsupportedModelError(
                f"{self._path} has {_PREFIX}{key} of another kind than a list of {item.__name__}"
            )
        return values

    def _check_length(self, key: str, values: list[Any]) -> None:
        if len(values) != len(self._tokens):
            raise UnsupportedModelError(
                f"{self._path} has {len(self._tokens)} tokens and {len(values)} entries in "
                f"{_PREFIX}{key}; one per token is needed"
            )
