"""Run many tasks that need replies of one model, in a batch.

A task is a generator: it yields a request and is sent the reply, any number of times. When a reply
ends, the next request gets its slot in the batch (Orca, Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu).
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mlxspec.batch.open import BatchSettings, OpenBatch
from mlxspec.batch.run import replies_as_they_end
from mlxspec.budget import FixedBudget
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.job import Job
from mlxspec.reply.writer import Workspace
from mlxspec.trace.events import EmittedToken

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request for a reply, whose samples do not depend on other requests."""

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    is_over: Callable[[Sequence[int]], bool]  # called with the reply after each token


Task = Generator[Request, list[int], T]
"""Yields requests, is sent the replies, returns its result."""


def run_tasks(
    loaded: LoadedModel, tasks: Iterable[Task[T]], batch_size: int
) -> Iterator[tuple[int, T]]:
    """Run tasks in a batch of at most `batch_size` replies; yield index and result as each ends."""
    target = Decoder(loaded.model, Cache.for_model(loaded.config))
    workspace = Workspace(target, NoDrafter(), FixedBudget())
    batch = OpenBatch(workspace, loaded.tokenizer, BatchSettings(batch_size))
    new, begun = iter(enumerate(tasks)), dict[int, Task[T]]()
    requests, written = dict[int, Request](), dict[int, list[int]]()
    waiting, results = deque[Job](), deque[tuple[int, T]]()

    def advance(index: int, reply: list[int] | None) -> None:
        task = begun[index]
        try:
            requests[index] = next(task) if reply is None else task.send(reply)
        except StopIteration as stop:
            del begun[index]
            results.append((index, stop.value))
        else:
            asked, written[index] = requests[index], []
            params = GenerationParams(
                max_tokens=asked.max_tokens,
                sampling=SamplingParams(temperature=asked.temperature),
                seed=asked.seed,
                num_draft_tokens=0,
                ignore_eos=True,  # `is_over` of the request decides instead
            )
            waiting.append(Job(index, list(asked.prompt), params))

    def next_job() -> Job | None:
        while not waiting:
            index, task = next(new, (0, None))
            if task is None:
                return None
            begun[index] = task
            advance(index, None)
        return waiting.popleft()

    def is_last(index: int, token: EmittedToken) -> bool:
        written[index].append(token.token)
        return requests[index].is_over(written[index])

    for reply in replies_as_they_end(batch, next_job, lambda index: False, is_last):
        reply.raise_error()
        advance(reply.index, list(reply.tokens))
        while results:
            yield results.popleft()
    yield from results
