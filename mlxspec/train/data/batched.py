"""Tasks that ask one model for replies, many of them side by side.

What asks for replies is a generator: it yields a request and is sent the reply, as often as it
likes; what it asks next may depend on what was said before. A reply that is over leaves its place
in the batch to the next request, so short ones do not wait for long ones (Orca, Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu).

    place 0   prompt . reply ......      |
    place 1   prompt ......... reply .   |  one round adds a token to each
    place 2   prompt . reply .           |

A request names its own seed, so its draws do not depend on its neighbours.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from mlxspec.batch import BatchReply, BatchRun, BatchSettings
from mlxspec.batch.jobs import Job
from mlxspec.drafters.none import NoDrafter
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.target.decoder import Decoder
from mlxspec.trace.events import EmittedToken

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A reply that is wanted.

    Attributes:
        prompt: What stands before it, at least one token.
        max_tokens: Tokens at most, 1 or more.
        temperature: 0 takes the most probable token, the lowest id where several are.
        seed: Seed of the draws, from 0 to 2**64 - 1.
        is_over: Told the reply after each token; says whether that was the last.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    is_over: Callable[[Sequence[int]], bool]


Task = Generator[Request, list[int], T]
"""Yields requests, is sent the replies, returns what it made of them."""


def run_tasks(
    loaded: LoadedModel, tasks: Iterable[Task[T]], batch_size: int
) -> Iterator[tuple[int, T]]:
    """Run tasks side by side, as many at a time as the batch has places.

    Yields:
        Index of a task that is done and what it returned, in the order in which they end.
    """
    target = Decoder(loaded.model, Cache(loaded.config.num_hidden_layers))
    run = BatchRun(target, NoDrafter(), loaded.tokenizer, BatchSettings(batch_size))
    asking = _Asking(tasks)
    replies = run.replies_as_they_end(asking.next_job, lambda index: False, asking.is_last)
    for reply in replies:
        asking.send(reply)
        yield from asking.take_results()
    yield from asking.take_results()


class _Asking(Generic[T]):
    """The tasks that were begun: what each of them asked, and what it was told so far."""

    def __init__(self, tasks: Iterable[Task[T]]) -> None:
        self._new = iter(enumerate(tasks))
        self._begun: dict[int, Task[T]] = {}
        self._requests: dict[int, Request] = {}
        self._said: dict[int, list[int]] = {}
        self._waiting: deque[Job] = deque()
        self._results: list[tuple[int, T]] = []

    def next_job(self) -> Job | None:
        """Return what a task waits for; where none does, begin others until one asks."""
        while not self._waiting:
            index, task = next(self._new, (0, None))
            if task is None:
                return None
            self._begun[index] = task
            self._advance(index, partial(next, task))
        return self._waiting.popleft()

    def is_last(self, index: int, token: EmittedToken) -> bool:
        """Note a token of a reply; say whether it ends the reply."""
        self._said[index].append(token.token)
        return self._requests[index].is_over(self._said[index])

    def send(self, reply: BatchReply) -> None:
        """Give a reply to the task that asked for it."""
        task = self._begun[reply.index]
        self._advance(reply.index, partial(task.send, list(reply.tokens)))

    def take_results(self) -> Iterator[tuple[int, T]]:
        """Yield what tasks have returned since the last time."""
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
            ignore_eos=True,  # the request says what ends its reply
        )
        self._waiting.append(Job(index, list(request.prompt), params))
