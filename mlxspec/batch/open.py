"""An open batch: replies join and leave between rounds, and report each token immediately.

    batch = engine.open_batch()
    first = batch.join("One", params)
    for reply, event in batch.step(): ...      # some of a prompt, one round for all that are ready
    second = batch.join("Another", params)     # from the next step on, both share each forward

A step first reads a part of the oldest waiting prompt, so a long prompt delays the other replies by
only one chunk at a time. Then it writes one round for all sequences: each sequence drafts, one
forward of the target verifies all trees, the host waits once, each sequence commits its own path.

A single reply is written as `Engine.generate` writes it, with the engine's budget; when a second
one joins, its rows move into a slot. The texts stay the same, because the random numbers of a token
depend only on its position. Sequences that cannot share a forward have separate ones, one after the
other (`separate.py`): slower, but exact.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import mlx.core as mx

from mlxspec.batch.decoder import BatchDecoder
from mlxspec.batch.jobs import Job, job_of
from mlxspec.batch.reading import Place, PromptReader
from mlxspec.batch.separate import SeparateDecoders
from mlxspec.batch.sequence import BatchSequence
from mlxspec.batch.settings import BatchSettings
from mlxspec.batch.width import WidthChoice
from mlxspec.budget import Budget, CostCurve
from mlxspec.decoder.decoder import PREFILL_CHUNK, Decoder
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter, as_drafter, fresh_drafter
from mlxspec.drafters.grammar.drafter import constrained
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction.drafter import predicting
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.errors import NumericsError
from mlxspec.grammar.compiled import Grammars
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.params import ChainRule, GenerationParams
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.reply import Reply
from mlxspec.reply.waited_round import wait_all
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import Event, GenerationFinished, PrefillProgress


@dataclass(frozen=True)
class Alone:
    """How a reply is written while no other reply is running.

    Attributes:
        write_round: Writes a round, as `Engine.round` does.
        budget: Decides how many draft nodes it verifies.
    """

    write_round: Callable[[Reply], Round]
    budget: Budget


class OpenBatch:
    """Writes replies that join and leave between rounds. Only one thread may use it."""

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        tokenizer: Tokenizer,
        settings: BatchSettings,
        costs: CostCurve | None = None,
        *,
        alone: Alone | None = None,
        prefixes: PrefixCache | None = None,
        chain_rule: ChainRule = "block",
        grammars: Grammars | None = None,
    ) -> None:
        """Prepare a batch; neither the target's cache nor the drafter changes.

        Args:
            target: Provides the model, and the kind of cache.
            drafter: Every slot gets a new one like it.
            tokenizer: The target's tokenizer.
            settings: Size of the batch.
            costs: Cost curve of forwards; None verifies all drafts whole.
            alone: How a reply is written while it is the only one; None as in a batch of one.
            prefixes: Stores rows of prefixes, which need not be computed again.
            chain_rule: Verifies sampled chains if the settings of a reply name no rule.
            grammars: Compiles the grammars of replies; None for one of only this batch.

        Raises:
            ValueError: The drafter cannot be copied.
        """
        self._target, self._tokenizer, self._settings = target, tokenizer, settings
        self._like = as_drafter(drafter)
        self._alone, self._chain_rule = alone, chain_rule
        self._grammars = grammars or Grammars(tokenizer)
        takes_rows = target.can_adopt and target.cache.can_be_cut
        self._reader = PromptReader(prefixes if takes_rows else None)
        self._members: list[BatchSequence] = []  # including those that have left in this step
        self._is_broken = False  # whether an error or an interrupt has ended the last step
        self._begin()
        # The cost of a shared forward does not apply to forwards one after the other.
        self._width = WidthChoice(costs if isinstance(self._decoder, BatchDecoder) else None)
        # Immediately, so that an unsuitable drafter is refused here.
        self._spare.append(self._new_place())

    def _begin(self) -> None:
        """Start with all sequences, from their reported texts, and with no rows."""
        self._decoder = _decoder_for(self._target, self._like)
        self._reader.stop(keeps_rows=False)
        self._reader.forget()
        self._spare: list[Place] = []
        self._places: dict[int, Place] = {}  # by slot, as `_running`
        self._running: dict[int, BatchSequence] = {}
        self._waiting = deque(one for one in self._members if not one.has_ended)
        self._lone: Reply | None = None  # writes the only running sequence
        for sequence in self._waiting:
            sequence.begin_again()

    # ---- who is here -----------------------------------------------------------------------

    @property
    def drafter(self) -> str:
        """Name of the drafter; every reply has its own copy."""
        return self._like.name

    @property
    def num_replies(self) -> int:
        """Number of replies that are not over, running or with an unread prompt."""
        return sum(not sequence.has_ended for sequence in self._members)

    @property
    def present(self) -> list[BatchSequence]:
        """All sequences, including those that have left in this step."""
        return list(self._members)

    @property
    def num_waiting(self) -> int:
        """Number of replies whose prompt is not read yet."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether one more reply could run at once."""
        return self.num_replies < self._settings.batch_size

    @property
    def running(self) -> list[BatchSequence]:
        """The sequences whose prompt is read, ordered by slot."""
        return [self._running[slot] for slot in sorted(self._running)]

    def join(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams | None = None,
        stop_when: StopWhen = never,
    ) -> BatchSequence:
        """Add a reply; it waits while all slots are taken.

        Args:
            prompt: Text without a chat template, or token ids.
            params: Settings; None for the defaults.
            stop_when: Called with every token before the events of its round; True makes that token
                the last.

        Raises:
            ValueError: As in `Engine.generate`.
            ContextLengthError: The prompt is longer than the model's context.
        """
        job = job_of(prompt, params, self._target, self._grammars, self._chain_rule)
        return self.add(job, stop_when)

    def add(self, job: Job, stop_when: StopWhen = never) -> BatchSequence:
        """Add a reply as `join` does, for a prompt that is already checked; see `Engine.job`."""
        sequence = BatchSequence(job, self._target, self._tokenizer, stop_when)
        self._members.append(sequence)
        self._waiting.append(sequence)
        return sequence

    def step(self) -> list[tuple[BatchSequence, Event]]:
        """Read some of the waiting prompts, and write a round; return the events of the replies.

        Every reply reports its prefill, its rounds and its end, also after `BatchSequence.cancel`.
        An error of one reply ends only that reply: it reports `GenerationFailed`, and `error` of
        the sequence holds the error. Any other error, and any interrupt, is raised; in the next
        step all replies continue from their reported texts.
        """
        with device_turn():
            if self._is_broken:
                self._begin()
            self._is_broken, num_read = True, 0
            while self._waiting and num_read < PREFILL_CHUNK and self._may_read:
                num_read += self.read(PREFILL_CHUNK - num_read)
            self.round()
            self.leave()
            self._is_broken = False
        told = [(one, event) for one in self._members for event in one.take_events()]
        self.take_over()
        return told

    def take_over(self) -> list[BatchSequence]:
        """Return the sequences that left since the last call."""
        over = [sequence for sequence in self._members if sequence.has_ended]
        self._members = [sequence for sequence in self._members if not sequence.has_ended]
        return over

    # ---- prompts ---------------------------------------------------------------------------

    @property
    def _may_read(self) -> bool:
        return len(self._running) < self._settings.batch_size or self._waiting[0].is_over

    def read(self, most: int = PREFILL_CHUNK) -> int:
        """Read up to `most` tokens of the oldest waiting prompt; return how many were read.

        The last token of the prompt is not read: it is the first root. After the others the
        sequence gets its slot.
        """
        sequence = self._waiting[0]
        if sequence.is_over:
            self._waiting.popleft()
            if place := self._reader.place:
                self._reader.stop(keeps_rows=sequence.error is None)
                self._give_back(place, sequence)
            self._end(sequence)
            return 0
        self._end_solo()
        place = self._reader.place
        if place is None:
            place = self._place_for(sequence.job.prompt)
            drafter = predicting(place.drafter, sequence.job.predicted)
            sequence.drafter = constrained(drafter, sequence.constraint)
            self._decoder.settle()
            self._reader.begin(sequence, place, self._supported(sequence.drafter))
        num_read = sequence.attempt(partial(self._reader.read, most))
        if self._reader.sequence is None:
            self._waiting.popleft()
            self._enter(sequence, place)
        return num_read or 0

    def _place_for(self, prompt: Sequence[int]) -> Place:
        """Return a reader and drafter: the free ones that have read most of the prompt."""
        if not self._spare:
            return self._new_place()
        known = [common_length(place.reader.history, prompt) for place in self._spare]
        return self._spare.pop(max(range(len(known)), key=known.__getitem__))

    def _give_back(self, place: Place, sequence: BatchSequence) -> None:
        """Keep reader and drafter of a sequence for the next one, unless an error damaged them."""
        error = sequence.error
        if error is None:
            self._spare.append(place)
            return
        if isinstance(error, NumericsError):
            # Rows of NaN would end every text that continues from them, and may already be stored.
            self._reader.forget()
        if isinstance(error, NumericsError) or self._reader.sequence is None:
            place.reader.reset()  # frees its memory too, which may have been too little

    def _new_place(self) -> Place:
        reader = self._decoder.reader()
        return Place(reader, fresh_drafter(self._like, reader))

    def _supported(self, drafter: Drafter) -> Drafter:
        """Return the drafter, or `NoDrafter`, which reads no states, if no drafts are verified."""
        return NoDrafter() if self._target.draft_support == "none" else drafter

    def _enter(self, sequence: BatchSequence, place: Place) -> None:
        """Put a sequence whose prompt is read into the first free slot, or a new one."""
        slots = range(self._decoder.num_slots + 1)
        slot = next(slot for slot in slots if slot not in self._running)
        self._running[slot], self._places[slot] = sequence, place
        self._seat(slot, place.reader)

    def _seat(self, slot: int, reader: Decoder) -> None:
        """Put a sequence into its slot with the rows of a decoder, and start its drafter."""
        sequence = self._running[slot]
        drafter = sequence.sound_drafter
        target = self._target
        drop = partial(self._detach, sequence)
        guard = Guard(drafter, target.vocab_size, drop, target.draft_support)
        self._decoder.seat(slot, reader, guard.active.readers)
        sequence.attempt(partial(sequence.draft_with, guard))

    def _detach(self, sequence: BatchSequence) -> None:
        """Stop passing hidden states to the drafter of a sequence, which failed."""
        for slot, other in self._running.items():
            if other is sequence:
                self._decoder.detach(slot)

    # ---- slots -----------------------------------------------------------------------------

    def leave(self) -> None:
        """Remove the sequences that are over from their slots."""
        has_failed = False
        for slot, sequence in list(self._running.items()):
            if not sequence.is_over and self._lone is None and self._room(slot) < 0:
                sequence.continuation.finish_reason = "context"
            if sequence.is_over:
                if sequence.error is None:
                    self._keep_rows(slot, sequence)
                else:
                    has_failed = True
                del self._running[slot]
                self._give_back(self._places.pop(slot), sequence)
                self._end(sequence)
        if has_failed:
            self._shrink()  # no sequence may get a slot that still holds rows of NaN

    def _end(self, sequence: BatchSequence) -> None:
        if self._lone is not None and not self._running:
            self._lone.leave()
            self._lone = None
        sequence.finish()

    def _keep_rows(self, slot: int, sequence: BatchSequence) -> None:
        """Store the rows of a reply: the next turn of its chat starts with them."""
        tokens = sequence.continuation.tokens
        if self._lone is not None:
            self._reader.keep(tokens[: len(self._lone.target)], self._lone.target.cache.rows)
        elif isinstance(self._decoder, BatchDecoder):
            length = self._decoder.length(slot)
            self._reader.keep(tokens[:length], partial(self._decoder.rows, slot))

    def _shrink(self) -> None:
        """Remove the unused slots."""
        kept = sorted(self._running)
        if len(kept) < self._decoder.num_slots:
            self._decoder.keep(kept)
            self._running = {new: self._running[old] for new, old in enumerate(kept)}
            self._places = {new: self._places[old] for new, old in enumerate(kept)}

    def _room(self, slot: int) -> int:
        """Number of tokens that fit into the context after the root; negative when it is full."""
        most = self._target.context_length
        return (1 << 30) if most is None else most - self._decoder.length(slot) - 1

    # ---- one reply alone -------------------------------------------------------------------

    def _begin_solo(self) -> None:
        """Let the engine's own loop write the only sequence."""
        assert self._alone is not None
        (slot, sequence), target = next(iter(self._running.items())), self._target
        drafter = sequence.sound_drafter
        readers = self._supported(drafter).readers
        seat = self._decoder.lend(slot, sequence.continuation.tokens[:-1], readers)
        token_bytes = self._tokenizer.token_bytes
        self._lone = Reply(
            sequence.continuation, drafter, self._alone.budget, token_bytes, target.context_length
        )
        self._lone.sit(seat, drafter, self._alone.budget)

    def _end_solo(self) -> None:
        """Move the sequence that was alone back into its slot."""
        if self._lone is None:
            return
        reply, self._lone = self._lone, None
        reply.leave()
        (slot,) = self._running
        self._seat(slot, reply.target)

    def _solo_round(self, sequence: BatchSequence) -> None:
        if self._lone is None:
            self._begin_solo()
        assert self._lone is not None
        assert self._alone is not None
        step = partial(self._lone.step, self._alone.write_round)
        for event in sequence.attempt(step) or ():
            if isinstance(event, GenerationFinished):
                sequence.held_back = event.text
            elif not isinstance(event, PrefillProgress):  # the sequence has reported its own
                sequence.tell(event)

    # ---- the round -------------------------------------------------------------------------

    def round(self) -> None:
        """Write a round of all running sequences."""
        self.leave()
        if not self._running:
            return
        is_alone = len(self._running) == 1 and not self._waiting
        if self._lone is None:
            self._shrink()
        if self._alone is not None and is_alone:
            self._solo_round(self.running[0])
        else:
            self._end_solo()
            self._shared_round(self.running)

    def _shared_round(self, sequences: Sequence[BatchSequence]) -> None:
        """Draft, forward, verify, commit, update: one target forward, and one wait, for all.

        A sequence that fails on the way commits nothing; the others continue.
        """
        start = time.perf_counter()
        most = self._settings.nodes_each(len(sequences))
        num_allowed = [
            min(most, sequence.continuation.draft_budget(self._room(slot)))
            for slot, sequence in enumerate(sequences)
        ]
        drafts = self._width.cut(
            [
                sequence.attempt(partial(sequence.propose, count))
                or Draft.empty(sequence.continuation.root)
                for sequence, count in zip(sequences, num_allowed, strict=True)
            ]
        )
        drafted = time.perf_counter()
        hidden = self._decoder.forward_trees([draft.tree for draft in drafts])
        ends = list(accumulate(draft.tree.n_nodes for draft in drafts))
        logits = mx.split(self._target.logits(hidden), ends[:-1])
        verified = [
            sequence.attempt(partial(sequence.verify, draft, rows))
            for sequence, draft, rows in zip(sequences, drafts, logits, strict=True)
        ]
        wait_all([pending for pending in verified if pending is not None])
        rounds = [
            None if pending is None else sequence.attempt(partial(sequence.take, pending))
            for sequence, pending in zip(sequences, verified, strict=True)
        ]
        self._decoder.commit([() if round is None else round.path for round in rounds])
        draft_ms, target_ms = (drafted - start) * 1e3, (time.perf_counter() - drafted) * 1e3
        num_rows = self._decoder.num_rows([draft.tree for draft in drafts])
        self._width.learn(rounds, num_rows, target_ms)
        for slot, (sequence, round) in enumerate(zip(sequences, rounds, strict=True)):
            if round is None:
                continue
            took = replace(
                round,
                num_allowed=max(num_allowed),
                num_rows=num_rows,
                draft_ms=draft_ms,
                target_ms=target_ms,
                context=self._decoder.length(slot),
            )
            sequence.attempt(partial(sequence.learn, took))


def _decoder_for(target: Decoder, drafter: Drafter) -> BatchDecoder | SeparateDecoders:
    """Return the decoder of a batch; sequences share a forward if that is possible."""
    is_shared = target.draft_support == "tree" and target.model.supports_batches
    if not is_shared or target.cache.max_size is not None or drafter.stages_in_target:
        return SeparateDecoders(target)
    return BatchDecoder(target.model, target.cache, 0)
