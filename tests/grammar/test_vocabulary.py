"""The tokens of a model as the library of grammars reads them, against the text that they write."""

import numpy as np
import pytest
from tokenizers import AddedToken, decoders

from mlxspec.grammar.compiled import Grammars
from mlxspec.params import Grammar
from mlxspec.text.tokenizer import Tokenizer
from tests.loading.test_tokenizer import byte_level, sentencepiece


def matcher_of(tokenizer, grammar):
    return Grammars(tokenizer).matcher(grammar)


def allowed(matcher):
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.unpackbits(bits, bitorder="little").nonzero()[0].tolist()


@pytest.mark.parametrize("word", ["đem", "Ġx", "Øre", "ö"])
def test_an_added_token_stands_for_its_letters(word):
    wrapped = byte_level()
    wrapped.add_tokens([AddedToken(word, normalized=False)])
    token = wrapped.convert_tokens_to_ids(word)
    matcher = matcher_of(Tokenizer(wrapped), Grammar.choices([f"<{word}>"]))
    (first,) = wrapped.encode("<")
    assert matcher.try_consume_tokens([first, token]) == 2
    assert allowed(matcher) == wrapped.encode(">")


def test_bytes_are_read_as_bytes_whatever_the_decoder():
    wrapped = byte_level()
    wrapped.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteFallback()])
    tokenizer, text = Tokenizer(wrapped), "é sea 🙂"
    tokens = tokenizer.encode(text)
    matcher = matcher_of(tokenizer, Grammar.choices([text]))
    assert matcher.try_consume_tokens(tokens) == len(tokens)
    assert matcher.is_accepting()


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
@pytest.mark.parametrize("text", ["the cat", " the cat", "{漢}"])
def test_what_a_grammar_forces_begins_with_no_space_of_the_tokenizer(make, text):
    tokenizer = Tokenizer(make())
    matcher, written = matcher_of(tokenizer, Grammar.choices([text])), b""
    while not matcher.is_accepting():
        (token,) = allowed(matcher)
        written += tokenizer.token_bytes(token)
        assert matcher.try_consume_tokens([token]) == 1
    assert written.decode() == text


def test_a_grammar_can_name_a_special_token():
    tokenizer = Tokenizer(byte_level())
    matcher = matcher_of(tokenizer, Grammar.lark('start: "a" <|user|>'))
    tokens = tokenizer.encode("a<|user|>")
    assert matcher.try_consume_tokens(tokens) == len(tokens) == 2
