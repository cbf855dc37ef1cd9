"""Run a list of jobs in an open batch: finished replies make room for further prompts."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mlxspec.batch.open import OpenBatch
from mlxspec.device.turns import device_turn
from mlxspec.reply.job import Job
from mlxspec.reply.reply import BatchReply, Reply
from mlxspec.trace.events import EmittedToken


def replies_in_order(
    batch: OpenBatch,
    jobs: Sequence[Job],
    should_stop: Callable[[int], bool],
    stop_when: Callable[[int, EmittedToken], bool],
) -> Iterator[BatchReply]:
    """Yield the replies in the order of the jobs, each as soon as it and those before are over.

    A prompt is read at once and whole. The functions get the index of a prompt: `should_stop` once
    per round and once per chunk of the prompt, `stop_when` with each token of the reply.
    """
    waiting, over = deque(jobs), dict[int, BatchReply]()
    for job in jobs:
        while job.index not in over:
            with device_turn():
                while batch.has_room and waiting:
                    _read(batch, waiting.popleft(), should_stop, stop_when)
                for reply in batch.running:
                    _ask(reply, should_stop)
                ended = {reply for reply, _ in batch.step() if reply.has_ended}
            over |= {reply.job.index: reply.finished() for reply in ended}
        yield over.pop(job.index)  # outside the turn: the caller may use the device meanwhile


def _read(
    batch: OpenBatch,
    job: Job,
    should_stop: Callable[[int], bool],
    stop_when: Callable[[int, EmittedToken], bool],
) -> None:
    reply = batch.add(job, partial(stop_when, job.index))
    while batch.waiting:
        _ask(reply, should_stop)
        batch.read()


def _ask(reply: Reply, should_stop: Callable[[int], bool]) -> None:
    """Cancel a reply if its caller wants to stop it."""
    if not reply.is_over and reply.attempt(partial(should_stop, reply.job.index)):
        reply.cancel()
