"""Runs a batch: prompts fill slots, rounds run, finished sequences leave.

A round is that of the engine, for all sequences at once: each sequence drafts, one forward of the
target verifies all trees, the host waits once, each sequence commits its own path. When a sequence
is over, the next prompt gets its slot; where none waits, the batch shrinks. A drafter belongs to a
slot, so it has learned from the prompts before.

Where sequences cannot share a forward, each has one of its own, one after the other
(`separate.py`): right before fast.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import mlx.core as mx

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.batch.jobs import Job
from mlxspec.batch.replies import BatchReply
from mlxspec.batch.separate import SeparateDecoders
from mlxspec.batch.sequence import BatchSequence
from mlxspec.batch.settings import BatchSettings
from mlxspec.batch.width import WidthChoice
from mlxspec.budget import CostCurve
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter, fresh_drafter, readers_of, stages_in_target
from mlxspec.drafters.grammar.drafter import constrained
from mlxspec.drafters.prediction.drafter import predicting
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.pending_round import wait_all
from mlxspec.target.decoder import PREFILL_CHUNK, Decoder
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
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
        """Prepare a batch; neither the target's cache nor the drafter changes.

        Args:
            target: Gives the model, and the kind of cache.
            drafter: Every slot gets a new one like it.
            tokenizer: The target's tokenizer.
            settings: Size of the batch.
            costs: Cost curve of forwards; None verifies all drafts whole.

        Raises:
            ValueError: The drafter cannot be made anew.
        """
        self._target = target
        self._tokenizer = tokenizer
        self._settings = settings
        self._decoder = _decoder_for(target, drafter, settings.batch_size)
        # The cost of a forward for all says nothing of forwards one after the other.
        self._width = WidthChoice(costs if isinstance(self._decoder, BatchDecoder) else None)
        self._drafters = [
            fresh_drafter(drafter, self._decoder.reader(slot))
            for slot in range(settings.batch_size)
        ]
        self._running: dict[int, BatchSequence] = {}  # by slot

    def replies(
        self,
        jobs: Sequence[Job],
        should_stop: Callable[[int], bool],
        stop_when: Callable[[int, EmittedToken], bool] = lambda index, token: False,
    ) -> Iterator[BatchReply]:
        """Yield the replies in the order of the jobs, each as soon as it and those before are over.

        Args:
            jobs: The prompts; a run can be used once.
            should_stop: As in `replies_as_they_end`.
            stop_when: As in `replies_as_they_end`.
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
        """Yield every reply as it ends; jobs may depend on the replies before them.

        Args:
            next_job: Called for each free slot, after the caller has the reply that left it; None
                where no job waits now. A run can be used once.
            should_stop: Called with the index of a prompt, once a round and once per chunk of it.
            stop_when: Called with the index of a prompt and each token of its reply.
        """
        self._stop_when = stop_when
        while True:
            with device_turn():
                over = self._let_go(should_stop)
                if not over and self._fill(next_job, should_stop):
                    over = self._let_go(should_stop)  # some are over before they begin
                if not over:
                    if not self._running:
                        return
                    self._shrink()
                    self._round([self._running[slot] for slot in sorted(self._running)])
            yield from over  # outside the turn: the caller may use the device meanwhile

    # ---- slots -----------------------------------------------------------------------------

    def _let_go(self, should_stop: Callable[[int], bool]) -> list[BatchReply]:
        """Remove the sequences that are over from their slots; return their replies."""
        over = [
            slot
            for slot, sequence in self._running.items()
            if self._is_over(slot, sequence, should_stop)
        ]
        return [self._running.pop(slot).finished() for slot in over]

    def _fill(self, next_job: Callable[[], Job | None], should_stop: Callable[[int], bool]) -> bool:
        """Give free slots to the jobs that wait; return whether there was one."""
        has_begun = False
        for slot in range(self._decoder.num_slots):
            if slot not in self._running and (job := next_job()):
                self._running[slot] = self._begin(slot, job, should_stop)
                has_begun = True
        return has_begun

    def _shrink(self) -> None:
        """Remove the slots for which no job waits."""
        kept = sorted(self._running)
        if len(kept) < self._decoder.num_slots:
            self._decoder.keep(kept)
            self._drafters = [self._drafters[slot] for slot in kept]
            self._running = {new: self._running[old] for new, old in enumerate(kept)}

    def _is_over(
        self, slot: int, sequence: BatchSequence, should_stop: Callable[[int], bool]
    ) -> bool:
        continuation = sequence.continuation
        if not continuation.finish_reason:
            if should_stop(sequence.job.index):
                continuation.finish_reason = "cancelled"
            elif self._room(slot) < 0:
                continuation.finish_reason = "context"
        return continuation.finish_reason is not None

    def _begin(self, slot: int, job: Job, should_stop: Callable[[int], bool]) -> BatchSequence:
        """Prefill all of a prompt but the last token, which is the first root."""
        tokenizer, target = self._tokenizer, self._target
        stop_when = partial(self._stop_when, job.index)
        continuation = Continuation(job.prompt, job.params, target, tokenizer, stop_when)
        drop = partial(self._detach, job.index)
        constraint = continuation.constrain(job.matcher, tokenizer)
        drafter = constrained(predicting(self._drafters[slot], job.predicted), constraint)
        guard = Guard(drafter, target.vocab_size, drop, target.draft_support)
        sequence = BatchSequence(job, continuation, guard, tokenizer.token_bytes)
        if continuation.finish_reason:
            return sequence
        read, reader, readers = (
            job.prompt[:-1],
            self._decoder.reader(slot),
            readers_of(guard.active),
        )
        reader.attach(readers)
        reused = reader.reusable(common_length(reader.history, read))
        reader.rollback_to(reused)
        step = min(PREFILL_CHUNK, job.params.prefill_step_size or PREFILL_CHUNK)
        for start in range(reused, len(read), step):
            if should_stop(job.index):
                continuation.finish_reason = "cancelled"
                return sequence
            reader.observe(read[start : start + step])
        self._decoder.join(slot, reader.cache, readers)
        sequence.start(reused)
        if guard.faults:  # it failed before the sequence had its place
            self._decoder.detach(slot)
        return sequence

    def _detach(self, index: int) -> None:
        """Give no more hidden states to a drafter that failed in the reply to a prompt."""
        for slot, sequence in self._running.items():
            if sequence.job.index == index:
                self._decoder.detach(slot)

    def _room(self, slot: int) -> int:
        """Tokens that still fit into the context after the root; negative when it is full."""
        most = self._target.context_length
        return (1 << 30) if most is None else most - self._decoder.length(slot) - 1

    # ---- the round -------------------------------------------------------------------------

    def _round(self, sequences: Sequence[BatchSequence]) -> None:
        """Draft, forward, verify, commit, update: one target forward, and one wait, for all."""
        start = time.perf_counter()
        most = self._settings.nodes_each(len(sequences))
        num_allowed = [
            min(most, sequence.continuation.draft_budget(self._room(slot)))
            for slot, sequence in enumerate(sequences)
        ]
        drafts = self._width.cut(
            [
                sequence.propose(count)
                for sequence, count in zip(sequences, num_allowed, strict=True)
            ]
        )
        drafted = time.perf_counter()
        hidden = self._decoder.forward_trees([draft.tree for draft in drafts])
        ends = list(accumulate(draft.tree.n_nodes for draft in drafts))
        logits = mx.split(self._target.logits(hidden), ends[:-1])
        pending = [
            sequence.verify(draft, rows)
            for sequence, draft, rows in zip(sequences, drafts, logits, strict=True)
        ]
        read = zip(sequences, wait_all(pending), pending, strict=True)
        rounds = [sequence.emit(found, waited) for sequence, found, waited in read]
        self._decoder.commit([round.path for round in rounds])
        draft_ms, target_ms = (drafted - start) * 1e3, (time.perf_counter() - drafted) * 1e3
        num_rows = self._decoder.num_rows([draft.tree for draft in drafts])
        self._width.learn(rounds, target_ms)
        for slot, sequence in enumerate(sequences):
            took = replace(
                rounds[slot],
                num_allowed=max(num_allowed),
                num_rows=num_rows,
                draft_ms=draft_ms,
                target_ms=target_ms,
                context=self._decoder.length(slot),
            )
            sequence.learn(took)


def _decoder_for(
    target: Decoder, drafter: Drafter, num_slots: int
) -> BatchDecoder | SeparateDecoders:
    """Return what runs the target; sequences share a forward where that is possible."""
    is_shared = target.draft_support == "tree" and target.model.supports_batches
    if not is_shared or target.cache.max_size is not None or stages_in_target(drafter):
        return SeparateDecoders(target, num_slots)
    return BatchDecoder(target.model, target.cache, num_slots)
