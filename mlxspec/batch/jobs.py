"""The prompts of a batch, checked before anything is read."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.decoder import Decoder
from mlxspec.loading.tokenizer import Tokenizer
from mlxspec.params import GenerationParams
from mlxspec.prompt import check_prompt


@dataclass(frozen=True)
class Job:
    """A prompt and how to reply to it.

    Attributes:
        index: Which prompt it is, counted from 0.
        prompt: Its tokens.
        params: Settings of the reply.
    """

    index: int
    prompt: list[int]
    params: GenerationParams


def jobs_of(
    prompts: Sequence[str | Sequence[int]],
    params: GenerationParams | Sequence[GenerationParams] | None,
    target: Decoder,
    tokenizer: Tokenizer,
) -> list[Job]:
    """Return one job per prompt.

    Args:
        prompts: Texts or token ids.
        params: Settings for all, one per prompt, or None for the usual ones.
        target: Who is to reply.
        tokenizer: The target's.

    Raises:
        ValueError: There are not as many settings as prompts, or a prompt is empty or holds a
            token outside the vocabulary.
        ContextLengthError: A prompt is longer than the model's context.
        TypeError: The prompts are one text.
    """
    if isinstance(prompts, str):
        raise TypeError("a batch takes a list of prompts; got one text: put it into a list")
    settings = _one_each(params, len(prompts))
    jobs = []
    for index, prompt in enumerate(prompts):
        tokens = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        most = target.model.config.max_position_embeddings
        check_prompt(tokens, target.vocab_size, most, "the model", f"prompt {index}")
        jobs.append(Job(index, tokens, settings[index]))
    return jobs


def _one_each(
    params: GenerationParams | Sequence[GenerationParams] | None, count: int
) -> list[GenerationParams]:
    if params is None or isinstance(params, GenerationParams):
        return [params or GenerationParams()] * count
    if len(params) != count:
        raise ValueError(
            f"got {len(params)} settings for {count} prompts: give one for all, or one per prompt"
        )
    return list(params)
