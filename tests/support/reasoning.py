"""A tiny model that says what a test writes down, with a real tokenizer and a made-up template."""

import mlx.core as mx
from tokenizers import AddedToken

from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.params import GenerationParams
from mlxspec.text.tokenizer import Tokenizer
from tests.support.tiny import make_engine, tiny_model
from tests.support.toy_chat import byte_tokenizer

VOCAB = 320  # wider than the tokenizer, as padded heads are
MODEL = tiny_model(vocab_size=VOCAB, max_position_embeddings=2048)

DROPPING = (
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{%- if tools %}{{ '<|im_start|>tools ' + tools | tojson + '<|im_end|>' }}{% endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and m.reasoning_content is defined and loop.index0 > ns.last %}"
    "{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"
    "{{- m.content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""Drops the reasoning of replies before the last message of the user, as Qwen3 does."""

OPENING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""Opens the reasoning in the prompt, and cuts it out of earlier replies, as DeepSeek-R1 does."""

CLOSING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Writes closed reasoning before the text of every reply, as Qwen3 does before that of the last."""

KEEPING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""Opens the reasoning in the prompt, and leaves replies as they are."""


def reasoning_tokenizer(
    template: str, marks=("<think>", "</think>"), *, are_special: bool = False
) -> Tokenizer:
    """A tokenizer of bytes with more control tokens."""
    wrapped = byte_tokenizer(template).wrapped
    wrapped.add_tokens([AddedToken(mark, special=are_special) for mark in marks], are_special)
    return Tokenizer(wrapped, [wrapped.convert_tokens_to_ids("<|im_end|>")])


def chat(tokenizer, drafter=None, **options) -> Conversation:
    engine = make_engine(MODEL, drafter or NoDrafter(), tokenizer=tokenizer)
    return Conversation(engine, **options)


def saying(tokenizer, text: str | list[int], **settings) -> GenerationParams:
    """Settings with which a reply is this text, whatever the model would say."""
    script = tokenizer.encode(text) if isinstance(text, str) else text
    base: list[int] = []

    def force(tokens, logits):
        base[:] = base or [tokens.size]  # the first call is for the prompt itself
        index = tokens.size - base[0]
        target = script[index] if index < len(script) else 0
        return mx.where(mx.arange(logits.shape[-1]) == target, 1e4, logits)

    return GenerationParams(**{"max_tokens": len(script), **settings}, logits_processors=(force,))
