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

    The functions are those of `replies_as_they_end`.
    """
    waiting, over = deque(jobs), dict[int, BatchReply]()
    ended = replies_as_they_end(
        batch, lambda: waiting.popleft() if waiting else None, should_stop, stop_when
    )
    for job in jobs:
        while job.index not in over:
            reply = next(ended)
            over[reply.index] = reply
        yield over.pop(job.index)


def replies_as_they_end(
    batch: OpenBatch,
    next_job: Callable[[], Job | None],
    should_stop: Callable[[int], bool],
    stop_when: Callable[[int, EmittedToken], bool],
) -> Iterator[BatchReply]:
    """Yield every reply as it ends; jobs may depend on earlier replies.

    `next_job` is called for each free slot, after the caller has the reply that left it; it returns
    None if no job waits now. The prompt is read at once and whole. The other functions get the
    index of a prompt: `should_stop` once per round and once per chunk of the prompt, `stop_when`
    with each token of the reply.
    """
    while True:
        with device_turn():
            while batch.has_room and (job := next_job()):
                reply = batch.add(job, partial(stop_when, job.index))
                while batch.waiting:
                    _ask(reply, should_stop)
                    batch.read()
            if not batch.present:
                return
            for reply in batch.running:
                _ask(reply, should_stop)
            ended = [reply for reply, _ in batch.step() if reply.has_ended]
        # Outside the turn: the caller may use the device in the meantime.
        yield from [reply.finished() for reply in dict.fromkeys(ended)]


def _ask(reply: Reply, should_stop: Callable[[int], bool]) -> None:
    """Cancel a reply if its caller wants to stop it."""
    if not reply.is_over and reply.attempt(partial(should_stop, reply.job.index)):
        reply.cancel()
