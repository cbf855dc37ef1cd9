"""Tokens to bytes against the tokenizers library, prompts against their templates."""

import json
import random
import re
import sys

import pytest
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordPiece
from transformers import PreTrainedTokenizerFast

from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.text.tokenizer import Tokenizer

TEXTS = [
    "The cat sat on the mat, and the cat was fat.",
    "naïve café, 漢字かな 🙂👍🏽 — ½ 2024\n\n\tend ",
    "for i in range(10):\n    print(i)\n",
    "  two  spaces   three",
]
SPECIAL = ["<|end|>", "<|user|>"]


def byte_level(texts=TEXTS, size=320, special=SPECIAL, **settings):
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", **settings)


def sentencepiece():
    letters = sorted(set("".join(TEXTS).replace(" ", "")) - set("漢字👍"))
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters, "▁t", "▁th"]
    merges = [("▁", "t"), ("▁t", "h")]
    ids = {token: index for index, token in enumerate(tokens)}
    backend = Backend(BPE(ids, merges, unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def random_text(draw):
    alphabet = "ab the  \n\t.,09äß漢字🙂👍🏽\u200d\u0301▁<0x0A>"
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 40)))


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_bytes_of_tokens_join_to_what_the_library_decodes(make):
    wrapped = make()
    tokenizer = Tokenizer(wrapped)
    draw = random.Random(0)
    for text in TEXTS + [random_text(draw) for _ in range(300)]:
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == wrapped.backend_tokenizer.decode(tokens)


def test_every_byte_has_a_token_of_its_own():
    tokenizer = Tokenizer(byte_level(texts=["plain"], size=258))
    found = {tokenizer.token_bytes(token) for token in range(2, 258)}
    assert found == {bytes([byte]) for byte in range(256)}


def test_special_tokens_have_names_and_add_nothing_to_a_text_unless_kept():
    tokenizer = Tokenizer(byte_level())
    tokens = tokenizer.encode("a<|end|>b<|user|>")
    assert tokenizer.decode(tokens) == "ab"
    assert tokenizer.decode(tokens, keep_special=True) == "a<|end|>b<|user|>"
    assert tokenizer.special["<|end|>"] == tokens[1]
    assert all(tokenizer.token_bytes(token) == b"" for token in tokenizer.special.values())
    assert all(tokenizer.token_bytes(token) == b"" for token in (-1, 320, 10**9))


@pytest.mark.parametrize("word", ["<tool call>", "ilÖveyou", "Ġx", "naïve café", "日本", "\u2581a"])
def test_letters_of_an_added_token_are_no_signs_for_bytes(word):
    wrapped = byte_level()
    wrapped.add_tokens([AddedToken(word, special=False, normalized=False)])
    tokenizer = Tokenizer(wrapped)
    tokens = tokenizer.encode(f"a {word} b")
    assert wrapped.convert_tokens_to_ids(word) in tokens
    assert tokenizer.decode(tokens) == f"a {word} b"


def test_spaces_of_an_added_token_of_sentencepiece_are_spaces():
    wrapped = sentencepiece()
    wrapped.add_tokens([AddedToken("▁▁▁", normalized=False)])
    token = wrapped.convert_tokens_to_ids("▁▁▁")
    assert Tokenizer(wrapped).token_bytes(token) == b"   "


SENTENCEPIECE = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
OTHER_DECODERS = {
    "of SentencePiece": [*SENTENCEPIECE, decoders.Strip(content=" ", left=1, right=0)],
    "by bytes alone": [decoders.ByteFallback(), decoders.Fuse()],
    "in a sequence": [decoders.Sequence([decoders.ByteLevel()]), decoders.Fuse()],
    "that says nothing": [decoders.Fuse()],
}


@pytest.mark.parametrize("name", [*OTHER_DECODERS, "none"])
@pytest.mark.parametrize("is_normalizer", [False, True])
def test_a_tokenizer_that_splits_by_bytes_is_read_by_bytes_whatever_its_decoder(
    name, is_normalizer
):
    backend = byte_level().backend_tokenizer
    if is_normalizer:
        backend.normalizer = normalizers.ByteLevel()
        backend.pre_tokenizer = pre_tokenizers.Split("Ġ", "merged_with_next")
    described = json.loads(backend.to_str())
    described["decoder"] = None
    backend = Backend.from_str(json.dumps(described))
    if name in OTHER_DECODERS:
        backend.decoder = decoders.Sequence(OTHER_DECODERS[name])
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
    for text in ("hello the sea", "é 日", "a\nb", " x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("splits", [True, False])
def test_sentencepiece_is_known_without_a_decoder(splits):
    described = json.loads(sentencepiece().backend_tokenizer.to_str())
    described["decoder"] = None
    if splits:
        spaces = pre_tokenizers.Metaspace(prepend_scheme="never")
        described["pre_tokenizer"] = json.loads(spaces.__getstate__())
        described["model"]["byte_fallback"] = False
    wrapped = PreTrainedTokenizerFast(tokenizer_object=Backend.from_str(json.dumps(described)))
    tokenizer = Tokenizer(wrapped)
    assert tokenizer.decode(tokenizer.encode("the cat")) == " the cat"


def test_a_text_that_begins_with_the_start_token_gets_no_second_one():
    wrapped = sentencepiece()
    wrapped.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    start, end = wrapped.bos_token_id, wrapped.eos_token_id
    backend = wrapped.backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", start), ("</s>", end)]
    )
    tokenizer = Tokenizer(wrapped)
    bare = tokenizer.encode("the cat", add_special_tokens=False)
    assert tokenizer.encode("the cat") == [start, *bare, end]
    assert tokenizer.encode("<s>the cat") == [start, *bare]  # a rendered chat, as mlx-lm takes it
    assert tokenizer.encode("<s><s>the cat") == [start, start, *bare]
    bare = tokenizer.encode("the<s>", add_special_tokens=False)
    assert tokenizer.encode("the<s>") == [start, *bare, end]
    assert tokenizer.encode("") == [start, end]


def test_a_beginning_of_several_tokens_is_not_written_twice():
    wrapped = byte_level(special=["<|end|>", "[gMASK]", "<sop>"])
    wrapped.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[gMASK] <sop> $A", special_tokens=[("[gMASK]", 1), ("<sop>", 2)]
    )
    tokenizer = Tokenizer(wrapped)
    whole = tokenizer.encode("cat")
    assert whole[:2] == [1, 2]
    assert tokenizer.encode("[gMASK]<sop>cat") == whole
    assert tokenizer.encode("[gMASK]cat") == [1, 2, 1, *whole[2:]]


def test_refuses_a_tokenizer_that_does_not_spell_bytes():
    backend = Backend(WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match="decodes by WordPiece"):
        Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))


# ---- chat --------------------------------------------------------------------------------------

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
MESSAGES = [{"role": "user", "content": "hi"}]


def test_a_model_without_a_template_cannot_chat():
    tokenizer = Tokenizer(byte_level())
    assert not tokenizer.has_chat_template
    with pytest.raises(UnsupportedOperationError, match="no chat template"):
        tokenizer.apply_chat_template(MESSAGES)


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].missing.part }}", "has no attribute"),
        ("{% for %}", "Expected"),
        ("{{ messages[0]['content'] + 1 }}", "str"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ""),
        ("{{ range(1000000000) | list }}", ""),
        ("{{ 'x' * 1000000000000000000 }}", ""),
    ],
)
def test_the_error_quotes_what_a_template_refuses(template, part):
    tokenizer = Tokenizer(byte_level(chat_template=template))
    with pytest.raises(UnsupportedOperationError, match=f"refuses.* user.*{part}"):
        tokenizer.apply_chat_template(MESSAGES)


# ---- same tokenizer ----------------------------------------------------------------------------


def added(*tokens, **options):
    wrapped = byte_level()
    wrapped.add_tokens(list(tokens), **options)
    return wrapped


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        (byte_level(), byte_level(), True),
        (byte_level(), added("<tool>", special_tokens=True), True),  # tokens at the end
        (byte_level(), byte_level(texts=["other words here"]), False),
        (byte_level(size=300), byte_level(size=320), False),  # it only begins alike
        (added("<a>", "<b>"), added("<b>", "<a>"), False),
    ],
)
def test_tokenizers_are_the_same_if_all_their_tokens_are(one, two, is_same):
    one, two = Tokenizer(one), Tokenizer(two)
    assert one.same_as(two) == two.same_as(one) == is_same
    assert (one.fingerprint == two.fingerprint) == (is_same and one.vocab_size == two.vocab_size)


# ---- harm --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages | attr('__class__') }}",
        "{{ messages | map(attribute='__class__') | list }}",
        "{{ messages[0]['__class__'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{% include 'tokenizer.json' %}",
        "{{ open('/etc/passwd').read() }}",
        "{{ messages[0].update(content='other') }}",
    ],
)
def test_a_template_reaches_neither_python_nor_files_nor_what_it_is_given(template):
    tokenizer, messages = Tokenizer(byte_level(chat_template=template)), [dict(MESSAGES[0])]
    try:
        text = tokenizer.render_chat(messages)
    except UnsupportedOperationError as error:
        text = str(error)
    assert not re.search("<class|root:|uid=|<module|<function", text)
    assert messages == MESSAGES


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"


def test_a_template_that_runs_on_is_stopped(monkeypatch):
    monkeypatch.setattr("mlxspec.text.chat_template.TIME_S", 0.05)
    tokenizer = Tokenizer(byte_level(chat_template=LOOPS))
    with pytest.raises(UnsupportedOperationError, match=r"ran for more than 0\.05 seconds"):
        tokenizer.render_chat(MESSAGES)
    tracer = sys.gettrace()
    assert Tokenizer(byte_level(chat_template=TEMPLATE)).render_chat(MESSAGES)
    assert sys.gettrace() is tracer  # a debugger goes on


POWER = "{{ 9**9**9 }}"


@pytest.mark.parametrize("template", [POWER, {"default": TEMPLATE, "tool_use": POWER}])
def test_a_template_with_powers_never_starts(template):
    tokenizer = Tokenizer(byte_level(chat_template=template))
    with pytest.raises(UnsupportedOperationError, match="powers"):
        tokenizer.render_chat(MESSAGES)
    shown = Tokenizer(byte_level(chat_template="2 ** 3 {# 9**9 #}{{ '**' }}"))
    assert shown.render_chat(MESSAGES) == "2 ** 3 **"


@pytest.mark.parametrize(
    "message", [{"content": "caf\ud83d"}, {"content": "", "tool_calls": [{"name": "caf\ud83d"}]}]
)
def test_half_a_character_has_its_place_in_the_text_of_the_user(message):
    template = "before {{ messages[0].content }}{{ messages[0].tool_calls[0].name }}"
    tokenizer = Tokenizer(byte_level(chat_template=template))
    with pytest.raises(ValueError, match=r"the text is not UTF-8: its character 4 is '.ud83d'"):
        tokenizer.apply_chat_template([{"role": "user", "tool_calls": [{}], **message}])


def test_a_template_that_writes_half_a_character_is_refused():
    tokenizer = Tokenizer(byte_level(chat_template="a\ud83d"))
    with pytest.raises(UnsupportedOperationError, match="writes half a character"):
        tokenizer.apply_chat_template(MESSAGES)


def test_a_token_of_an_absurd_number_is_refused_before_a_list_is_made_for_it(monkeypatch):
    monkeypatch.setattr("mlxspec.text.tokenizer.MAX_TOKENS", 100)
    with pytest.raises(UnsupportedModelError, match=r"a token with id \d+; at most 100"):
        Tokenizer(byte_level())
