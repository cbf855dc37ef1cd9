"""Runs a list of jobs in an open batch: finished replies make room for further prompts.

A free slot gets the next prompt, which is read at once and whole; if no prompt waits, the batch
shrinks.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mlxspec.batch.jobs import Job
from mlxspec.batch.open import OpenBatch
from mlxspec.batch.replies import BatchReply
from mlxspec.batch.sequence import BatchSequence
from mlxspec.batch.settings import BatchSettings
from mlxspec.budget import CostCurve
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.events import EmittedToken


class BatchRun:
    """Writes the replies to a list of prompts, several at a time."""

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        tokenizer: Tokenizer,
        settings: BatchSettings,
        costs: CostCurve | None = None,
    ) -> None:
        """Prepare a batch; arguments and errors as in `OpenBatch`."""
        self._batch = OpenBatch(target, drafter, tokenizer, settings, costs)

    def replies(
        self,
        jobs: Sequence[Job],
        should_stop: Callable[[int], bool],
        stop_when: Callable[[int, EmittedToken], bool] = lambda index, token: False,
    ) -> Iterator[BatchReply]:
        """Yield the replies in the order of the jobs, each as soon as it and those before are over.

        A run can be used once. The functions are those of `replies_as_they_end`.
        """
        waiting = deque(jobs)
        ended = self.replies_as_they_end(
            lambda: waiting.popleft() if waiting else None, should_stop, stop_when
        )
        over: dict[int, BatchReply] = {}
        for job in jobs:
            while job.index not in over:
                reply = next(ended)
                over[reply.index] = reply
            yield over.pop(job.index)

    def replies_as_they_end(
        self,
        next_job: Callable[[], Job | None],
        should_stop: Callable[[int], bool],
        stop_when: Callable[[int, EmittedToken], bool] = lambda index, token: False,
    ) -> Iterator[BatchReply]:
        """Yield every reply as it ends; jobs may depend on earlier replies.

        A run can be used once. `next_job` is called for each free slot, after the caller has the
        reply that left it; it returns None if no job waits now. The other functions get the index
        of a prompt: `should_stop` once per round and once per chunk of the prompt, `stop_when` with
        each token of the reply.
        """
        while True:
            with device_turn():
                over = self._let_go(should_stop)
                if not over and self._fill(next_job, should_stop, stop_when):
                    over = self._let_go(should_stop)  # some are over before they start
                if not over:
                    if not self._batch.num_replies:
                        return
                    self._batch.round()
            yield from over  # outside the turn: the caller may use the device in the meantime

    def _let_go(self, should_stop: Callable[[int], bool]) -> list[BatchReply]:
        """Remove the sequences that are over; return their replies."""
        for sequence in self._batch.running:
            _ask(sequence, should_stop)
        self._batch.leave()
        return [sequence.finished() for sequence in self._batch.take_over()]

    def _fill(
        self,
        next_job: Callable[[], Job | None],
        should_stop: Callable[[int], bool],
        stop_when: Callable[[int, EmittedToken], bool],
    ) -> bool:
        """Let waiting jobs join while there is room; return whether a job joined."""
        has_begun = False
        while self._batch.has_room and (job := next_job()):
            has_begun = True
            sequence = self._batch.add(job, partial(stop_when, job.index))
            while self._batch.num_waiting:
                if len(job.prompt) > 1:
                    _ask(sequence, should_stop)
                self._batch.read()
        return has_begun


def _ask(sequence: BatchSequence, should_stop: Callable[[int], bool]) -> None:
    """Cancel a sequence if its caller wants to stop it."""
    if not sequence.is_over and sequence.attempt(partial(should_stop, sequence.job.index)):
        sequence.cancel()
