"""Run many tasks that need replies of one model, in a batch.

A task is a generator: it yields a request and is sent the reply, any number of times; a request may
depend on earlier replies. When a reply ends, the next request gets its slot in the batch, so short
replies do not wait for long ones (Orca, Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu).

    slot 0   prompt . reply ......      |
    slot 1   prompt ......... reply .   |  one round adds a token to each
    slot 2   prompt . reply .           |

Each request has its own seed, so its samples do not depend on the other slots.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from mlxspec.batch import BatchReply, BatchSettings, OpenBatch, replies_as_they_end
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.job import Job
from mlxspec.trace.events import EmittedToken

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request for a reply of 1 to `max_tokens` tokens.

    Attributes:
        prompt: At least one token.
        temperature: 0 is greedy (of equal logits, the lowest id).
        seed: From 0 to 2**64 - 1.
        is_over: Called with the reply after each token; returns whether the reply ends there.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    is_over: Callable[[Sequence[int]], bool]


Task = Generator[Request, list[int], T]
"""Yields requests, is sent the replies, returns its result."""


def run_tasks(
    loaded: LoadedModel, tasks: Iterable[Task[T]], batch_size: int
) -> Iterator[tuple[int, T]]:
    """Run tasks in a batch of at most `batch_size` replies; yield index and result as each ends."""
    target = Decoder(loaded.model, Cache.for_model(loaded.config))
    batch = OpenBatch(target, NoDrafter(), loaded.tokenizer, BatchSettings(batch_size))
    asking = _Asking(tasks)
    for reply in replies_as_they_end(batch, asking.next_job, lambda index: False, asking.is_last):
        reply.raise_error()
        asking.send(reply)
        yield from asking.take_results()
    yield from asking.take_results()


class _Asking(Generic[T]):
    """The running tasks, with the open request of each and the tokens of its reply so far."""

    def __init__(self, tasks: Iterable[Task[T]]) -> None:
        self._new = iter(enumerate(tasks))
        self._begun: dict[int, Task[T]] = {}
        self._requests: dict[int, Request] = {}
        self._said: dict[int, list[int]] = {}
        self._waiting: deque[Job] = deque()
        self._results: list[tuple[int, T]] = []

    def next_job(self) -> Job | None:
        """Return the next waiting request; if none waits, start tasks until one yields one."""
        while not self._waiting:
            index, task = next(self._new, (0, None))
            if task is None:
                return None
            self._begun[index] = task
            self._advance(index, partial(next, task))
        return self._waiting.popleft()

    def is_last(self, index: int, token: EmittedToken) -> bool:
        """Record a token of a reply; return whether it ends the reply."""
        self._said[index].append(token.token)
        return self._requests[index].is_over(self._said[index])

    def send(self, reply: BatchReply) -> None:
        task = self._begun[reply.index]
        self._advance(reply.index, partial(task.send, list(reply.tokens)))

    def take_results(self) -> Iterator[tuple[int, T]]:
        """Yield the results of tasks that ended since the last call."""
        done, self._results = self._results, []
        yield from done

    def _advance(self, index: int, resume: Callable[[], Request]) -> None:
        try:
            request = resume()
        except StopIteration as stop:
            del self._begun[index]
            self._results.append((index, stop.value))
            return
        self._requests[index], self._said[index] = request, []
        params = GenerationParams(
            max_tokens=request.max_tokens,
            sampling=SamplingParams(temperature=request.temperature),
            seed=request.seed,
            num_draft_tokens=0,
            ignore_eos=True,  # `is_over` of the request decides instead
        )
        self._waiting.append(Job(index, list(request.prompt), params))
