"""Measures the cost of a token in a reply after a long text.

The text is the built-in questions, repeated. A text that is longer than the model's context is read
with a rotating cache, as with `--max-kv-size`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from mlxspec.bench.arms import own_arms
from mlxspec.bench.prompts import read_questions
from mlxspec.bench.sample import Task
from mlxspec.device.backend import GB
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.loading import LoadedModel
from mlxspec.params import Options
from mlxspec.progress import Say

WINDOW = 4096
"""Rows of the rotating cache for contexts that are longer than the model's."""


CONTEXT_HEADER = (
    f"{'arm':<22}{'context':>8}  {'cache':<24}{'first token, s':>15}{'ms/token':>10}"
    f"{'tokens/forward':>15}{'cache, GB':>11}{'in all, GB':>11}"
)


@dataclass(frozen=True)
class ContextFigures:
    """The figures of a reply after a text of `context` tokens.

    Attributes:
        prompt_s: Seconds to the first tokens; most of it is the prefill.
        ms_per_token: Milliseconds per token after the first ones; None if there are none.
        cache_gb: Size of the cache at the end, in GB.
        own_memory_gb: Largest memory that prefill and reply added, in GB.
    """

    arm: str
    context: int
    cache: str
    prompt_s: float
    ms_per_token: float | None
    tokens_per_forward: float
    cache_gb: float
    own_memory_gb: float


def context_lengths(text: str) -> list[int]:
    """Return the lengths in a list such as "1k,8k", with k as 1024; else raise `ValueError`."""
    lengths = []
    for word in text.lower().split(","):
        number, factor = (word[:-1], 1024) if word.endswith("k") else (word, 1)
        if not number.strip().isdigit() or int(number) < 1:
            raise ValueError(f"lengths are numbers of tokens, like 1k,8k; got {text!r}")
        lengths.append(int(number) * factor)
    return lengths


def measure_context(
    loaded: LoadedModel, options: Options, arms: Sequence[str], length: int, task: Task, say: Say
) -> list[ContextFigures]:
    """Return the figures of every arm after `length` tokens of text.

    `length` decides the size of the cache instead of `options`. Stop tokens do not end a reply.
    """
    fits = length + task.max_tokens <= loaded.config.max_position_embeddings
    options = replace(options, max_kv_size=None if fits else WINDOW)
    prompt = list(islice(cycle(_text(loaded)), length))
    found = []
    for name in arms:
        drafter_context = make_drafter_context(loaded, options, say)
        (arm,) = own_arms([name], drafter_context)
        reply = arm.write(prompt, replace(task, ignores_stop=True))
        later = reply.later_tokens
        found.append(
            ContextFigures(
                arm=arm.name,
                context=length,
                cache=drafter_context.target.cache.describe(),
                prompt_s=reply.ttft_s,
                ms_per_token=1e3 * reply.seconds / later if later else None,
                tokens_per_forward=len(reply.tokens) / reply.forwards,
                cache_gb=drafter_context.target.cache.nbytes / GB,
                own_memory_gb=reply.own_memory_gb,
            )
        )
    return found


def _text(loaded: LoadedModel) -> list[int]:
    turns = [turn for question in read_questions() for turn in question.turns]
    tokens = loaded.tokenizer.encode("\n\n".join(turns))
    return tokens or [0]


def context_row(found: ContextFigures) -> str:
    """Return a row of the table below `CONTEXT_HEADER`."""
    ms = "-" if found.ms_per_token is None else f"{found.ms_per_token:.1f}"
    return (
        f"{found.arm:<22}{found.context:>8}  {found.cache:<24}{found.prompt_s:>15.1f}{ms:>10}"
        f"{found.tokens_per_forward:>15.2f}{found.cache_gb:>11.3f}{found.own_memory_gb:>11.3f}"
    )
