"""Writes folders of tiny models that can chat: they reply to any text with a few random bytes."""

import mlx.core as mx

from tests.support.model_folders import random_weights, save_folder, tiny_config
from tests.support.toy_chat import CHATML, byte_tokenizer

END = "<|im_end|>"


def save_chat_folder(folder, seed=0):
    """Write a model with one token per byte and a chat template; return its folder."""
    tokenizer = byte_tokenizer(CHATML).wrapped
    config = tiny_config(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
    )
    weights = {name: mx.array(array) for name, array in random_weights(config, seed).items()}
    save_folder(folder, config, weights)
    tokenizer.save_pretrained(folder)
    return folder
