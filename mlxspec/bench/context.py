"""Measures the cost of a token in a reply after a long text.

The text is the built-in questions, repeated. A text that is longer than the model's context is read
with a rotating cache, as with `--max-kv-size`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from mlxspec.bench.arms import Task, own_arms
from mlxspec.bench.prompts import read_questions
from mlxspec.device.backend import GB
from mlxspec.drafting.engines import make_drafter_context
from mlxspec.loading import LoadedModel
from mlxspec.measure.tables import cell, table
from mlxspec.params import Options
from mlxspec.progress import Say

WINDOW = 4096
"""Rows of the rotating cache for contexts that are longer than the model's."""


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
        digits, factor = (word[:-1], 1024) if word.endswith("k") else (word, 1)
        if not digits.strip().isdigit() or int(digits) < 1:
            raise ValueError(f"lengths are numbers of tokens, like 1k,8k; got {text!r}")
        lengths.append(int(digits) * factor)
    return lengths


def measure_context(
    loaded: LoadedModel, options: Options, arms: Sequence[str], length: int, task: Task, say: Say
) -> list[ContextFigures]:
    """Return the figures of every arm after `length` tokens of text.

    `length` decides the size of the cache instead of `options`. Stop tokens do not end a reply.
    """
    fits = length + task.max_tokens <= loaded.config.max_position_embeddings
    options = replace(options, max_kv_size=None if fits else WINDOW)
    turns = [turn for question in read_questions() for turn in question.turns]
    prompt = list(islice(cycle(loaded.tokenizer.encode("\n\n".join(turns)) or [0]), length))
    found = []
    for name in arms:
        context = make_drafter_context(loaded, options, say)
        (arm,) = own_arms([name], context)
        reply = arm.write(prompt, replace(task, ignores_stop=True))
        later, cache = reply.later_tokens, context.target.cache
        found.append(
            ContextFigures(
                arm=arm.name,
                context=length,
                cache=cache.describe(),
                prompt_s=reply.ttft_s,
                ms_per_token=1e3 * reply.seconds / later if later else None,
                tokens_per_forward=len(reply.tokens) / reply.forwards,
                cache_gb=cache.nbytes / GB,
                own_memory_gb=reply.own_memory_gb,
            )
        )
    return found


def context_table(found: Sequence[ContextFigures]) -> str:
    """Return a table, one row per arm and length."""
    head = ["arm", "context", "cache", "first token, s", "ms/token", "tokens/forward"]
    rows = [
        [
            *(one.arm, str(one.context), one.cache, cell(one.prompt_s, 1)),
            *(cell(one.ms_per_token, 1), cell(one.tokens_per_forward)),
            *(cell(one.cache_gb, 3), cell(one.own_memory_gb, 3)),
        ]
        for one in found
    ]
    return table([[*head, "cache, GB", "in all, GB"], *rows])
