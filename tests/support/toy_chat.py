"""A chat template and tokenizers, small enough to write conversations by hand."""

import mlx.core as mx
import numpy as np
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from mlxspec.loading import LoadedModel, Tokenizer
from tests.support.tiny import ToyTokenizer, tiny_model

USER, END, REPLY, SYSTEM = "uvwx"  # the last four letters stand for special tokens
CHATML = (
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ '<|bos|>' }}{% for message in messages %}{{ '<|head|>' + message.role + '<|/head|>\n\n' "
    "+ message.content | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
)
LLAMA2 = (
    "{% for message in messages %}{% if message.role == 'user' %}"
    "{{ '<s>[INST] ' + message.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + message.content + ' </s>' }}{% endif %}{% endfor %}"
)
SPECIAL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|bos|>",
    "<|head|>",
    "<|/head|>",
    "<|eot|>",
    "<s>",
    "</s>",
)


class ToyChat(ToyTokenizer):
    """Letters a to t are text; a turn is written u...v, a reply w...v, a system prompt x...v."""

    has_chat_template = True
    eos_token_ids = (ord(END) - ord("a"),)
    fingerprint = "toy"
    footer = END

    def encode(self, text, *, add_special_tokens=True):
        return super().encode(text)

    def decode(self, tokens, *, keep_special=False):
        return "".join(chr(ord("a") + token) for token in tokens if keep_special or token < 20)

    def token_bytes(self, token):
        return self.decode([token]).encode()

    def render_chat(self, messages, *, add_generation_prompt=True, **_):
        opening = {"user": USER, "assistant": REPLY, "system": SYSTEM}
        ending = {"user": self.footer, "assistant": END, "system": END}
        turns = [opening[m["role"]] + m["content"] + ending[m["role"]] for m in messages]
        return "".join(turns) + (REPLY if add_generation_prompt else "")


# Added to the logits: turns end soon, and no other special token occurs.
BIAS = np.zeros(24, np.float32)
BIAS[ord(END) - ord("a")] = 2.0
BIAS[[ord(letter) - ord("a") for letter in (USER, REPLY, SYSTEM)]] = -30.0


def toy_target(**config) -> LoadedModel:
    """A tiny model that chats in letters."""
    model = tiny_model(vocab_size=24, **config)
    plain_logits, bias = model.logits, mx.array(BIAS)
    model.logits = lambda hidden: plain_logits(hidden) + bias
    return LoadedModel(model, ToyChat(), "toy", "float32")


def byte_tokenizer(template: str) -> Tokenizer:
    """A real tokenizer with one token per byte and the special tokens of all templates above."""
    # Sorted, as the letters come in another order in every process.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {letter: index for index, letter in enumerate(letters)}
    backend = Backend(BPE(ids, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template))
