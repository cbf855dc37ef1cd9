"""What a token costs when much text stands before it.

The text is the built-in questions over and over. A context longer than the model's own is read
through a rotating cache, as `--max-kv-size` makes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from mlxspec.api import Say, make_site
from mlxspec.bench.arms import own_arms
from mlxspec.bench.prompts import read_questions
from mlxspec.bench.sample import Task
from mlxspec.device.backend import GB
from mlxspec.loading import LoadedModel
from mlxspec.params import Options

WINDOW = 4096
"""Rows of the rotating cache for contexts that are longer than the model's."""


CONTEXT_HEADER = (
    f"{'arm':<22}{'context':>8}  {'cache':<24}{'first token, s':>15}{'ms/token':>10}"
    f"{'tokens/forward':>15}{'cache, GB':>11}{'in all, GB':>11}"
)


@dataclass(frozen=True)
class ContextFigures:
    """A reply after so much text.

    Attributes:
        arm: Who wrote it.
        context: Tokens before it.
        cache: The kind of cache in words.
        prompt_s: Seconds to the first tokens: most of them read the text.
        ms_per_token: Milliseconds of each token after them; None where none came.
        tokens_per_forward: Tokens per target forward.
        cache_gb: GB that the cache holds in the end.
        own_memory_gb: GB that reading and writing took at most.
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
    """Return the lengths in a list such as "1k,8k", k being 1024.

    Raises:
        ValueError: One of them is no length.
    """
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
    """Let every arm write after so many tokens of text.

    Args:
        loaded: The target.
        options: Settings of the engine; the size of its cache is chosen here.
        arms: Words of `--arms`.
        length: Tokens of text.
        task: How to write; stop tokens do not end it.
        say: Told what a user should know.
    """
    fits = length + task.max_tokens <= loaded.config.max_position_embeddings
    options = replace(options, max_kv_size=None if fits else WINDOW)
    prompt = list(islice(cycle(_text(loaded)), length))
    found = []
    for name in arms:
        site = make_site(loaded, options, say)
        (arm,) = own_arms([name], site)
        reply = arm.write(prompt, replace(task, ignores_stop=True))
        later = reply.later_tokens
        found.append(
            ContextFigures(
                arm=arm.name,
                context=length,
                cache=site.target.cache.describe(),
                prompt_s=reply.ttft_s,
                ms_per_token=1e3 * reply.seconds / later if later else None,
                tokens_per_forward=len(reply.tokens) / reply.forwards,
                cache_gb=site.target.cache.nbytes / GB,
                own_memory_gb=reply.own_memory_gb,
            )
        )
    return found


def _text(loaded: LoadedModel) -> list[int]:
    turns = [turn for question in read_questions() for turn in question.turns]
    tokens = loaded.tokenizer.encode("\n\n".join(turns))
    return tokens or [0]


def context_row(found: ContextFigures) -> str:
    """Return the row of the table below `CONTEXT_HEADER`."""
    ms = "-" if found.ms_per_token is None else f"{found.ms_per_token:.1f}"
    return (
        f"{found.arm:<22}{found.context:>8}  {found.cache:<24}{found.prompt_s:>15.1f}{ms:>10}"
        f"{found.tokens_per_forward:>15.2f}{found.cache_gb:>11.3f}{found.own_memory_gb:>11.3f}"
    )
