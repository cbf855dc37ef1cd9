"""An open batch: replies join and leave between rounds, and report each token immediately.

    batch = engine.open_batch()
    first = batch.join("One", params)
    for reply, event in batch.step(): ...      # some of a prompt, one round for all that are ready
    second = batch.join("Another", params)     # from the next step on, both share each forward

A step first reads a part of the oldest waiting prompt, so a long prompt delays the other replies by
only one chunk at a time. Then it writes one round for all replies.

A single reply is written as `Engine.generate` writes it, by a `ReplyWriter`; when a second one
joins, both move to the `BatchWriter`. Replies that cannot share a forward each keep a writer and a
decoder of their own, and write their rounds one after the other: slower, but exact. That is so
where the cache rotates, where the drafter continues the forward of its own reply, and where the
target verifies no trees, because a batch of unequal drafts is a forward of trees.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from mlxspec.batch.settings import BatchSettings
from mlxspec.batch.writer import BatchWriter
from mlxspec.budget import Budget, CostCurve, FixedBudget
from mlxspec.decoder.decoder import PREFILL_CHUNK, Decoder
from mlxspec.device.turns import device_turn
from mlxspec.drafters.base import Drafter, as_drafter
from mlxspec.errors import NumericsError
from mlxspec.grammar.compiled import Grammars
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.params import ChainRule, GenerationParams
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.reply.job import Job, job_of
from mlxspec.reply.reply import Reply
from mlxspec.reply.round import write_round
from mlxspec.reply.writer import ReplyWriter, Workspace
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import Event


class OpenBatch:
    """Writes replies that join and leave between rounds. Only one thread may use it."""

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        tokenizer: Tokenizer,
        settings: BatchSettings,
        *,
        budget: Budget | None = None,
        costs: CostCurve | None = None,
        prefixes: PrefixCache | None = None,
        chain_rule: ChainRule = "block",
        grammars: Grammars | None = None,
    ) -> None:
        """Prepare a batch; neither the target's cache nor the drafter changes.

        Args:
            target: Provides the model, and the kind of cache.
            drafter: Every reply gets a new one like it.
            tokenizer: The target's tokenizer.
            settings: Size of the batch.
            budget: Decides how many draft nodes are verified for a reply that shares no forward;
                None for all of them.
            costs: Cost curve of shared forwards; None verifies all drafts whole.
            prefixes: Stores rows of prefixes, which need not be computed again.
            chain_rule: Verifies sampled chains if the settings of a reply name no rule.
            grammars: Compiles the grammars of replies; None for one of only this batch.

        Raises:
            ValueError: The drafter cannot be copied.
        """
        self._target, self._tokenizer, self._settings = target, tokenizer, settings
        self._like = Workspace(target, as_drafter(drafter), budget or FixedBudget())
        self._costs, self._chain_rule = costs, chain_rule
        self._grammars = grammars or Grammars(tokenizer)
        stores_rows = target.can_adopt and target.cache.can_be_cut
        self._prefixes = prefixes if prefixes is not None and stores_rows else PrefixCache(0)
        self._members: list[Reply] = []  # including those that have left in this step
        self._is_broken = False  # whether an error or an interrupt has ended the last step
        self._begin()
        # Immediately, so that an unsuitable drafter is refused here.
        self._spare.append(self._new_workspace())

    def _begin(self) -> None:
        """Start with all replies, from their reported texts, and with no rows."""
        self._shared: BatchWriter | None = None  # of all that share a forward, if that is possible
        if _can_share(self._target, self._like.drafter):
            self._shared = BatchWriter(self._target, self._settings, self._costs)
        self._writers: dict[Reply, ReplyWriter] = {}  # of all others that have a writer
        self._prefixes.clear()
        self._spare: list[Workspace] = []
        self._workspaces: dict[Reply, Workspace] = {}
        self._running: list[Reply] = []
        self._waiting = deque(reply for reply in self._members if not reply.has_ended)
        for reply in self._waiting:
            reply.begin_again()

    # ---- who is here -----------------------------------------------------------------------

    @property
    def drafter(self) -> str:
        """Name of the drafter; every reply has its own copy."""
        return self._like.drafter.name

    @property
    def num_replies(self) -> int:
        """Number of replies that are not over, running or with an unread prompt."""
        return sum(not reply.has_ended for reply in self._members)

    @property
    def present(self) -> list[Reply]:
        """All replies, including those that have left in this step."""
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
    def running(self) -> list[Reply]:
        """The replies whose prompt is read."""
        return list(self._running)

    def join(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams | None = None,
        stop_when: StopWhen = never,
    ) -> Reply:
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

    def add(self, job: Job, stop_when: StopWhen = never) -> Reply:
        """Add a reply as `join` does, for a prompt that is already checked; see `Engine.job`."""
        reply = Reply(job, self._target, self._tokenizer, stop_when)
        self._members.append(reply)
        self._waiting.append(reply)
        return reply

    # ---- a step ----------------------------------------------------------------------------

    def step(self) -> list[tuple[Reply, Event]]:
        """Read some of the waiting prompts, and write a round; return the events of the replies.

        Every reply reports its prefill, its rounds and its end, also after `Reply.cancel`. An error
        of one reply ends only that reply: it reports `GenerationFailed`, and its `error` holds the
        error. Any other error, and any interrupt, is raised; in the next step all replies continue
        from their reported texts.
        """
        with device_turn():
            if self._is_broken:
                self._begin()
            self._is_broken, num_read = True, 0
            while self._waiting and num_read < PREFILL_CHUNK and self._may_read:
                num_read += self.read(PREFILL_CHUNK - num_read)
            self._round()
            self._release()
            self._is_broken = False
        told = [(one, event) for one in self._members for event in one.take_events()]
        self._members = [reply for reply in self._members if not reply.has_ended]
        return told

    @property
    def _may_read(self) -> bool:
        return len(self._running) < self._settings.batch_size or self._waiting[0].is_over

    def read(self, most: int = PREFILL_CHUNK) -> int:
        """Read up to `most` tokens of the oldest waiting prompt; return how many were read."""
        reply, num_read = self._waiting[0], 0
        if reply.is_over:
            self._waiting.popleft()
            self._end(reply)
            return 0
        writer = self._writers.get(reply) or self._begin_reading(reply)
        if writer.is_reading:
            num_read = reply.attempt(partial(writer.read, most)) or 0
        if not writer.is_reading:
            self._running.append(self._waiting.popleft())
        return num_read

    def _begin_reading(self, reply: Reply) -> ReplyWriter:
        self._share()  # the reader may hold the text of a reply that is written alone
        prompt = reply.continuation.tokens
        known = [common_length(spare.decoder.history, prompt) for spare in self._spare]
        best = max(range(len(known)), key=known.__getitem__, default=None)
        workspace = self._new_workspace() if best is None else self._spare.pop(best)
        self._workspaces[reply] = workspace
        reply.draft_with(workspace.drafter)
        return self._write_alone(reply)

    def _write_alone(self, reply: Reply) -> ReplyWriter:
        writer = ReplyWriter(reply, self._workspaces[reply], self._prefixes)
        self._writers[reply] = writer
        return writer

    def _new_workspace(self) -> Workspace:
        return self._like.like(self._shared.reader if self._shared else self._target.apart())

    def _round(self) -> None:
        """Write a round of all running replies."""
        self._release()
        is_reading = any(reply in self._writers for reply in self._waiting)
        if self._shared and len(self._running) == 1 and not is_reading:
            (reply,) = self._running
            if reply not in self._writers:
                self._shared.move_to_reader(reply)
                self._write_alone(reply)
        else:
            self._share()
        for reply in self._running:
            if writer := self._writers.get(reply):
                writer.most_nodes = self._settings.nodes_each(len(self._running))
                reply.attempt(writer.step)
        if self._shared and self._shared.replies:
            write_round(self._shared)

    def _share(self) -> None:
        """Let the running replies share their forwards, if that is possible."""
        for reply in self._running if self._shared else ():
            if writer := self._writers.pop(reply, None):
                writer.leave()
                assert self._shared
                self._shared.add(reply, writer.decoder)

    # ---- the end of a reply ----------------------------------------------------------------

    def _release(self) -> None:
        """Let the replies that are over leave."""
        over = [reply for reply in self._running if reply.is_over]
        self._running = [reply for reply in self._running if not reply.is_over]
        for reply in over:
            self._end(reply)

    def _end(self, reply: Reply) -> None:
        """Keep what a reply leaves for the next one, unless an error damaged it; report its end."""
        workspace, writer = self._workspaces.pop(reply, None), self._writers.pop(reply, None)
        if writer is not None:
            writer.leave()
        if workspace is not None and reply.error is None:
            self._store(reply, writer)
            self._spare.append(workspace)
        elif workspace is not None:
            self._forget(workspace, is_nan=isinstance(reply.error, NumericsError))
        if self._shared and reply in self._shared.replies:
            self._shared.remove(reply)
            if reply.error is not None:
                self._shared.shrink()  # no reply may get a slot that still holds rows of NaN
        reply.finish()

    def _store(self, reply: Reply, writer: ReplyWriter | None) -> None:
        """Store the rows of a reply: the next turn of its chat starts with them."""
        if writer is not None:
            writer.store()
        elif self._shared:
            self._prefixes.add(*self._shared.rows_of(reply))

    def _forget(self, workspace: Workspace, *, is_nan: bool) -> None:
        """Forget the rows that a failed reply may have damaged."""
        if is_nan:  # every text that continues from them would end, too
            self._prefixes.clear()
        if is_nan or not self._writers:
            workspace.decoder.reset()  # frees its memory too, which may have been too little


def _can_share(target: Decoder, drafter: Drafter) -> bool:
    """Return whether replies can share a forward."""
    verifies_trees = target.draft_support == "tree" and target.model.supports_batches
    return verifies_trees and target.cache.max_size is None and not drafter.stages_in_target
