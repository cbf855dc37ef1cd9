"""SentencePiece tokenizers of GGUF files ("llama"): Llama 1 and 2, TinyLlama, Mistral 7B.

The file holds pieces and scores. Two pieces can merge if their concatenation is a piece, and the
merge with the best score comes first. So the merges of byte-pair encoding follow from the scores.
Bytes without a piece become <0x00> ... <0xFF>.
"""

from collections.abc import Mapping

from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE

_SPACE = "\u2581"
_LONGEST = 256  # longest piece that merges can give, in characters; real pieces have up to 16


def sentencepiece_backend(
    ids: dict[str, int], scores: Mapping[str, float], unknown: str | None, *, space_first: bool
) -> Tokenizer:
    """Return the tokenizer of pieces and their scores.

    Pieces with larger scores merge first; every piece that merges can give has a score. `unknown`
    is the piece for text that no other piece can represent. `space_first` adds a space before the
    text.
    """
    merges = _merges(scores, ids)
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
