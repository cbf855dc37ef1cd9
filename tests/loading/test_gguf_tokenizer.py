"""Tokenizers built from GGUF metadata, against SentencePiece and splits written by hand."""

import random
from pathlib import Path

import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.tokenizer import eos_token_ids, tokenizer_from_gguf
from mlxspec.text.tokenizer import Tokenizer
from tests.support.gguf_files import TOKENIZER

FILE = Path("some.gguf")


def build(**changes) -> Tokenizer:
    stated = TOKENIZER | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    metadata = {key: value for key, value in stated.items() if value is not None}
    return Tokenizer(tokenizer_from_gguf(FILE, metadata), eos_token_ids(metadata))


def pieces(text: str, **changes) -> list[str]:
    """The text of the words into which the splitting rule cuts, as the library reports them."""
    metadata = TOKENIZER | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    splitter = tokenizer_from_gguf(FILE, metadata).backend_tokenizer.pre_tokenizer
    return [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)]


# ---- byte-level --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("smollm", ["It", "'s", " ", "2", "0", "2", "4", " now", ",", "  ", " ok"]),
        ("gpt-2", ["It", "'s", " 2024", " now", ",", "  ", " ok"]),
        ("llama-bpe", ["It", "'s", " ", "202", "4", " now", ",", "  ", " ok"]),
        ("exaone4", ["It", "'s", " 2024", " now", ",", "  ", " ok"]),
        ("starcoder", ["It", "'s", " ", "2", "0", "2", "4", " now", ",", "  ", " ok"]),
        ("refact", ["It", "'s", " ", "2", "0", "2", "4", " now", ",", "  ", " ok"]),
        ("dbrx", ["It", "'s", " ", "202", "4", " now", ",", "  ", " ok"]),
        ("smaug-bpe", ["It", "'s", " ", "202", "4", " now", ",", "  ", " ok"]),
        ("glm4", ["It", "'s", " ", "202", "4", " now", ",", "  ", " ok"]),
        ("gpt-4o", ["It's", " ", "202", "4", " now", ",", "  ", " ok"]),
        ("qwen2", ["It", "'s", " ", "2", "0", "2", "4", " now", ",", "  ", " ok"]),
    ],
)
def test_text_is_split_by_the_rule_of_the_family(rule, expected):
    assert pieces("It's 2024 now,   ok", pre=rule) == expected


def test_merges_are_applied_and_special_tokens_kept_whole():
    assert build().encode("abc<|end|>a b") == [20, 2, 23, 0, 21, 1]


def test_only_llama_3_uses_a_word_of_the_vocabulary_without_its_merges():
    tokens = [*TOKENIZER["tokenizer.ggml.tokens"][:-1], "fed"]
    changes = {"tokens": tokens, "token_type": [1] * 24, "eos_token_id": None}
    assert build(**changes, pre="llama-bpe").encode("fed") == [23]
    assert build(**changes, pre="smollm").encode("fed") == [5, 4, 3]
    assert build(**changes, pre="dbrx").encode("fed") == [5, 4, 3]


def test_a_start_token_is_put_first_only_where_the_file_or_family_asks():
    assert build(bos_token_id=3).encode("a") == [0]
    assert build(bos_token_id=3, add_bos_token=True).encode("a") == [3, 0]
    assert build(bos_token_id=3, pre="llama-bpe").encode("a") == [3, 0]
    assert build(bos_token_id=3, pre="llama-bpe", add_bos_token=False).encode("a") == [0]

    tokens = [*TOKENIZER["tokenizer.ggml.tokens"][:-1], "$A: b"]  # a name of the template
    assert build(tokens=tokens, bos_token_id=23, add_bos_token=True).encode("a") == [23, 0]


def test_a_start_token_is_left_out_of_a_template_of_the_file():
    metadata = TOKENIZER | {
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
    }
    tokenizer = Tokenizer(tokenizer_from_gguf(FILE, metadata))
    assert tokenizer.encode("a") == [3, 0]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}]) == [0]


def test_composed_and_decomposed_letters_are_one_to_qwen():
    changes = {"pre": "qwen2", "tokens": [*TOKENIZER["tokenizer.ggml.tokens"][:-3], "Ã©", "x", "y"]}
    assert build(**changes, merges=["Ã ©"]).encode("e\u0301") == build(**changes).encode("é")


def test_unused_rows_are_no_tokens():
    tokens = [*TOKENIZER["tokenizer.ggml.tokens"], "[PAD24]", "[PAD25]"]
    tokenizer = build(tokens=tokens, token_type=[1] * 23 + [3, 5, 5])
    assert tokenizer.vocab_size == 24
    assert tokenizer.same_as(build())


def test_tokens_known_to_end_a_text_are_end_tokens():
    tokens = [*TOKENIZER["tokenizer.ggml.tokens"], "<|endoftext|>", "<|im_end|>"]
    types = [1] * 23 + [3, 3, 1]
    assert build(tokens=tokens, token_type=types, eot_token_id=5).eos_token_ids == (5, 23, 24)
    tokens[24:] = ["<end_of_turn>", "[|endofturn|]"]
    types[25] = 3
    assert build(tokens=tokens, token_type=types).eos_token_ids == (23, 24, 25)


def test_where_a_token_returns_the_end_of_a_part_ends_no_reply():
    tokens = [*TOKENIZER["tokenizer.ggml.tokens"][:-2], "<|return|>", "<|end|>"]
    changes = {"tokens": tokens, "token_type": [1] * 22 + [3, 3], "eos_token_id": 22}
    assert build(**changes).eos_token_ids == (22,)
    tokens[22] = "x"
    assert build(**changes).eos_token_ids == (22, 23)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model": "bert"}, "kind 'bert'"),
        ({"pre": "tekken"}, "splits text by 'tekken'"),
        ({"pre": ["smollm"]}, "splits text by \"['smollm']\""),
        ({"tokens": []}, "holds no tokens"),
        ({"tokens": "abc"}, "tokens of another kind than a list of str"),
        ({"token_type": [1, 2]}, "24 tokens and 2 entries in tokenizer.ggml.token_type"),
        ({"merges": [1]}, "merges of another kind"),
        ({"model": "llama"}, "24 tokens and 0 entries in tokenizer.ggml.scores"),
    ],
)
def test_refuses_what_it_cannot_build_by_name(changes, part):
    with pytest.raises(UnsupportedModelError) as caught:
        build(**changes)
    assert part in str(caught.value)


@pytest.mark.parametrize("index", [-1, 24, 2**31, "a", None])
def test_pointers_to_no_token_are_passed_over(index):
    assert build(eos_token_id=index, bos_token_id=index, add_bos_token=True).encode("a") == [0]


# ---- SentencePiece -----------------------------------------------------------------------------

CORPUS = (
    "The draft model proposes tokens and the target model verifies them in one pass. "
    "Naïve café; 1234 tokens,  two  spaces: the rest is silence.\n"
) * 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small SentencePiece model trained by its own library."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "corpus.txt").write_text(CORPUS)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "model"),
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(str(folder / "model.model"))


def metadata_of(processor):
    kinds = {"is_unknown": 2, "is_control": 3, "is_byte": 6}
    size = processor.vocab_size()
    return {
        "model": "llama",
        "tokens": [processor.id_to_piece(index) for index in range(size)],
        "scores": [processor.get_score(index) for index in range(size)],
        "token_type": [
            next((kind for name, kind in kinds.items() if getattr(processor, name)(index)), 1)
            for index in range(size)
        ],
        "bos_token_id": processor.bos_id(),
        "eos_token_id": processor.eos_id(),
        "unknown_token_id": processor.unk_id(),
    }


def test_pieces_and_scores_lead_to_the_tokens_of_sentencepiece(trained):
    tokenizer = build(**metadata_of(trained))
    draw = random.Random(0)
    for _ in range(500):
        start = draw.randrange(len(CORPUS) - 60)
        text = CORPUS[start : start + draw.randrange(1, 60)] + draw.choice(["", "🙂", " 漢字 x"])
        assert tokenizer.encode(text) == [trained.bos_id(), *trained.encode(text)]


def test_the_space_in_front_can_be_switched_off(trained):
    text, metadata = "The café 🙂\n漢字", metadata_of(trained)
    for is_added, space in ((True, " "), (False, "")):
        tokenizer = build(**metadata, add_space_prefix=is_added)
        assert tokenizer.decode(tokenizer.encode(text)) == space + text


@pytest.mark.timeout(30)
def test_a_piece_as_long_as_a_book_does_not_hold_up_the_loading(trained):
    metadata = metadata_of(trained)
    metadata["tokens"] = [*metadata["tokens"][:-1], "x" * 1_000_000]
    assert build(**metadata).encode("the")[0] == trained.bos_id()
