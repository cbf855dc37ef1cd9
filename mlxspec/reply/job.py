"""Prompts and their settings, checked before any of them is prefilled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.decoder.decoder import Decoder
from mlxspec.grammar.compiled import Grammars
from mlxspec.params import GenerationParams, check_params
from mlxspec.params.checks import is_list, token_ids, wrong_type
from mlxspec.text.prompt import check_prompt


@dataclass(frozen=True)
class Job:
    """A prompt and how to reply to it."""

    index: int  # of the prompt, counted from 0; 0 for a single prompt
    prompt: list[int]
    params: GenerationParams
    predicted: Sequence[int] = ()  # tokens of the text that the reply is expected to repeat
    matcher: Callable[[], Any] | None = None  # makes matchers of the grammar; see `Grammars`
    kept: Sequence[int] = ()  # tokens with which the reply starts
    num_begun: int = 0  # tokens at the end of the prompt that are the start of the reply


def jobs_of(
    prompts: Sequence[str | Sequence[int]],
    params: GenerationParams | Sequence[GenerationParams] | None,
    target: Decoder,
    grammars: Grammars,
    usual: GenerationParams,
) -> list[Job]:
    """Return one job per prompt; settings are for all prompts, or one per prompt."""
    if isinstance(prompts, str):
        raise ValueError("a batch needs a list of prompts; got one text: put it into a list")
    listed = _listed("prompts", prompts, "a list of prompts")
    settings = _one_each(params, len(listed))
    return [
        job_of(prompt, settings[index], target, grammars, usual, index=index)
        for index, prompt in enumerate(listed)
    ]


def job_of(
    prompt: str | Sequence[int],
    params: GenerationParams | None,
    target: Decoder,
    grammars: Grammars,
    usual: GenerationParams,
    *,
    model: str = "",
    index: int | None = None,
) -> Job:
    """Return one prompt and its settings, checked, and its grammar compiled.

    Any thread may call it while another one uses the target. `usual` is as in
    `check_params`. Messages name the model, and the prompt by its index if there are several.
    """
    name, of = "the prompt", "params"
    if index is not None:
        name, of = f"prompt {index}", f"params of prompt {index}"
    encode = grammars.tokenizer.encode
    own = check_params(params, target.vocab_size, usual, of)
    allowed = "text, or token ids in a list or array"
    tokens = encode(prompt) if isinstance(prompt, str) else token_ids(name, prompt, allowed)
    check_prompt(tokens, target.vocab_size, target.context_length, model, name)
    predicted = encode(own.prediction, add_special_tokens=False) if own.prediction else []
    return Job(index or 0, tokens, own, predicted, grammars.matchers(own.grammar))


def _listed(name: str, values: object, allowed: str) -> list[Any]:
    """Return the items of a sequence, or the rows of an array."""
    is_array = hasattr(values, "tolist") and getattr(values, "ndim", 0) > 0
    if not (is_array or is_list(values)):
        raise wrong_type(name, allowed, values)
    rows: Any = values
    return list(rows)


def _one_each(
    params: GenerationParams | Sequence[GenerationParams] | None, count: int
) -> list[GenerationParams]:
    if params is None or isinstance(params, GenerationParams):
        return [GenerationParams() if params is None else params] * count
    listed = _listed("params", params, "one GenerationParams, or a list of one per prompt")
    if len(listed) != count:
        raise ValueError(
            f"got {len(listed)} settings for {count} prompts: give one for all, or one per prompt"
        )
    return listed
