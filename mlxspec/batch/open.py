"""An open batch: replies join and leave between rounds, and report each token immediately.

    batch = engine.open_batch()
    first = batch.join("One", params)
    for reply, event in batch.step(): ...      # some of a prompt, one round for all that are ready
    second = batch.join("Another", params)     # from the next step on, both share each forward

A step first reads one chunk of the oldest waiting prompt, then writes one round for all replies. A
single reply, such as that of `Engine.generate`, is written by a `ReplyWriter`; when a second one
joins, both move to the `BatchWriter`. Replies that cannot share a forward keep writers and decoders
of their own, and write their rounds one after the other. That is so where the cache rotates, where
the drafter continues the forward of its own reply, and where the target verifies no trees, because
a batch of unequal drafts is a forward of trees.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mlxspec.batch.writer import BatchWriter
from mlxspec.budget import CostCurve
from mlxspec.decoder.decoder import PREFILL_CHUNK
from mlxspec.device.turns import device_turn
from mlxspec.errors import NumericsError
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.params import GenerationParams
from mlxspec.params.checks import set_fields, whole
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.reply.job import Job
from mlxspec.reply.reply import Reply
from mlxspec.reply.round import write_round
from mlxspec.reply.writer import ReplyWriter, Workspace
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import Event

DEFAULT_BATCH_SIZE = 8
DEFAULT_ROWS_PER_ROUND = 64

MakeJob = Callable[[str | Sequence[int], GenerationParams | None], Job]


@dataclass(frozen=True)
class BatchSettings:
    """The maximum number of sequences decoded together, and of rows of a forward that drafts fill.

    Every sequence has its root in each round, and the other rows are divided equally: a tree has at
    most `rows_per_round // sequences` rows, and at most its own `num_draft_tokens`. With a measured
    cost curve, trees are cut to the fastest width.
    """

    batch_size: int = DEFAULT_BATCH_SIZE
    rows_per_round: int = DEFAULT_ROWS_PER_ROUND

    def __post_init__(self) -> None:
        set_fields(
            self,
            batch_size=whole("batch_size", self.batch_size, "1 or more", least=1),
            rows_per_round=whole(
                "rows_per_round", self.rows_per_round, "1 (plain decoding) or more", least=1
            ),
        )

    def nodes_each(self, num_sequences: int) -> int:
        """Return how many nodes each of `num_sequences` may draft, without its root."""
        return max(0, self.rows_per_round // num_sequences - 1)


class OpenBatch:
    """Writes replies that join and leave between rounds. One thread at a time may use it.

    The first reply is written with `workspace`, and other replies get new ones like it. If replies
    share forwards, its decoder reads all prompts.
    """

    def __init__(
        self,
        workspace: Workspace,
        tokenizer: Tokenizer,
        settings: BatchSettings,
        *,
        costs: CostCurve | None = None,
        prefixes: PrefixCache | None = None,
        make_job: MakeJob | None = None,
    ) -> None:
        """Prepare a batch.

        Without the cost curve of shared forwards, all drafts are verified whole. `prefixes` stores
        rows that need not be computed again. `join` needs `make_job`, which is `Engine.job`.
        """
        self.workspace, self._tokenizer, self._settings = workspace, tokenizer, settings
        self._costs, self._make_job = costs, make_job
        stores_rows = workspace.decoder.can_adopt and workspace.decoder.cache.can_be_cut
        self._prefixes = prefixes if prefixes is not None and stores_rows else PrefixCache(0)
        self.present: list[Reply] = []  # all, including those that have left in this step
        self._is_broken = False  # whether an error or an interrupt has ended the last step
        self._begin()

    def _begin(self) -> None:
        """Start with all replies, from their reported texts."""
        self._shared: BatchWriter | None = None  # of all that share a forward, if that is possible
        if self._settings.batch_size > 1 and _can_share(self.workspace):
            self._shared = BatchWriter(self.workspace.decoder, self._costs)
        self._writers: dict[Reply, ReplyWriter] = {}  # of all others that have a writer
        self._prefixes.clear()
        self._spare = [self.workspace]
        self._workspaces: dict[Reply, Workspace] = {}
        self.running: list[Reply] = []  # those whose prompt is read
        self.waiting = deque(reply for reply in self.present if not reply.has_ended)
        for reply in self.waiting:
            reply.begin_again()

    def continue_in(self, workspace: Workspace) -> None:
        """Continue the only reply in another workspace: its decoder has another text by now."""
        self.workspace = workspace
        self._spare = [workspace for _ in self._spare]
        self._workspaces = dict.fromkeys(self._workspaces, workspace)

    # ---- who is here -----------------------------------------------------------------------

    @property
    def num_replies(self) -> int:
        """Number of replies that are not over, running or with an unread prompt."""
        return sum(not reply.has_ended for reply in self.present)

    @property
    def has_room(self) -> bool:
        """Whether one more reply could run at once."""
        return self.num_replies < self._settings.batch_size

    def join(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams | None = None,
        stop_when: StopWhen = never,
    ) -> Reply:
        """Add a reply; it waits while all slots are taken.

        Arguments and errors are those of `Engine.generate`.
        """
        assert self._make_job
        return self.add(self._make_job(prompt, params), stop_when)

    def add(self, job: Job, stop_when: StopWhen = never) -> Reply:
        """Add a reply as `join` does, for a prompt that `Engine.job` has checked."""
        reply = Reply(job, self.workspace.decoder, self._tokenizer, stop_when)
        self.present.append(reply)
        self.waiting.append(reply)
        return reply

    def save_prefixes(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Write the rows stored since the last call into files, if the engine has any."""
        with device_turn():
            self._prefixes.save(should_stop)

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
                self.workspace = self.workspace.like(self.workspace.decoder.apart())
                self._begin()
            self._is_broken, num_read = True, 0
            while self.waiting and num_read < PREFILL_CHUNK and self._may_read:
                num_read += self.read(PREFILL_CHUNK - num_read)
            self.write()
            self._is_broken = False
        told = [(one, event) for one in self.present for event in one.take_events()]
        self.present = [reply for reply in self.present if not reply.has_ended]
        return told

    @property
    def _may_read(self) -> bool:
        return len(self.running) < self._settings.batch_size or self.waiting[0].is_over

    def read(self, most: int = PREFILL_CHUNK) -> int:
        """Read up to `most` tokens of the oldest waiting prompt; return how many were read.

        A prompt whose decoder got another text meanwhile is read whole.
        """
        reply, num_read = self.waiting[0], 0
        if reply.is_over:
            self.waiting.popleft()
            self._end(reply)
            return 0
        is_begun = reply in self._writers
        writer = self._writer_of(reply) if is_begun else self._begin_reading(reply)
        if writer.is_announced and not is_begun:  # the caller hears of it before the first chunk
            return 0
        if writer.is_reading:
            num_read = reply.attempt(partial(writer.read, most)) or 0
        if not writer.is_reading:
            self.running.append(self.waiting.popleft())
        return num_read

    def _begin_reading(self, reply: Reply) -> ReplyWriter:
        self._share()  # the reader may hold the text of a reply that is written alone
        workspace = self._spare_workspace(reply) or self._new_workspace(reply)
        self._workspaces[reply] = workspace
        reply.draft_with(workspace.drafter)
        return self._write_alone(reply)

    def _writer_of(self, reply: Reply) -> ReplyWriter:
        """Return the writer of a reply: a new one if its decoder has another text by now."""
        writer, workspace = self._writers[reply], self._workspaces[reply]
        if writer.decoder is workspace.decoder and writer.is_intact:
            return writer
        reply.draft_with(workspace.drafter)
        return self._write_alone(reply, is_moved=True)

    def _write_alone(self, reply: Reply, *, is_moved: bool = False) -> ReplyWriter:
        workspace = self._workspaces[reply]
        is_alone = self._settings.batch_size == 1
        writer = ReplyWriter(reply, workspace, self._prefixes, is_alone=is_alone, is_moved=is_moved)
        self._writers[reply] = writer
        return writer

    def _spare_workspace(self, reply: Reply) -> Workspace | None:
        """Take the spare workspace whose text begins most like a reply's, if there is one."""
        reader, prompt = self.workspace.decoder, reply.continuation.tokens
        fitting = [
            spare
            for spare in self._spare
            if not self._shared or (spare.decoder is reader) == self._may_share(reply)
        ]
        known = [common_length(spare.decoder.history, prompt) for spare in fitting]
        best = max(range(len(known)), key=known.__getitem__, default=None)
        if best is None:
            return None
        self._spare.remove(fitting[best])
        return fitting[best]

    def _new_workspace(self, reply: Reply) -> Workspace:
        decoder = self.workspace.decoder
        return self.workspace.like(decoder if self._may_share(reply) else decoder.apart())

    def _may_share(self, reply: Reply) -> bool:
        """Whether a reply may share forwards; their rows do not have the bits of its own."""
        return self._shared is not None and not reply.job.params.exact

    def write(self) -> None:
        """Write a round of all running replies; those that are over leave."""
        self._release()
        is_reading = any(reply in self._writers for reply in self.waiting)
        if self._shared and len(self.running) == 1 and not is_reading:
            (reply,) = self.running
            if reply not in self._writers:
                self._shared.move_to_reader(reply)
                self._write_alone(reply)
        else:
            self._share()
        most = self._settings.nodes_each(len(self.running)) if self.running else 0
        for reply in self.running:
            if reply in self._writers:
                reply.attempt(partial(self._write_one, reply, most))
        if self._shared and self._shared.replies:
            self._shared.most_nodes = most
            write_round(self._shared)
        self._release()

    def _write_one(self, reply: Reply, most_nodes: int) -> None:
        writer = self._writer_of(reply)
        writer.most_nodes = most_nodes
        writer.write()

    def _share(self) -> None:
        """Let the running replies share their forwards, if that is possible."""
        for reply in filter(self._may_share, self.running):
            if writer := self._writers.pop(reply, None):
                writer.leave()
                assert self._shared
                self._shared.add(reply, writer.decoder)

    # ---- the end of a reply ----------------------------------------------------------------

    def _release(self) -> None:
        """Let the replies that are over leave."""
        over = [reply for reply in self.running if reply.is_over]
        self.running = [reply for reply in self.running if not reply.is_over]
        for reply in over:
            self._end(reply)

    def _end(self, reply: Reply) -> None:
        """Keep what a reply leaves for the next one, unless an error damaged it; report its end."""
        workspace, writer = self._workspaces.pop(reply, None), self._writers.pop(reply, None)
        if writer is not None:
            writer.leave()
        if workspace is not None and reply.error is not None:
            self._forget(workspace, reply.error)
        elif workspace is not None:
            self._store(reply, writer)
            self._spare.append(workspace)
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

    def _forget(self, workspace: Workspace, error: Exception) -> None:
        """Forget the rows of a failed reply if they are damaged, or took too much memory."""
        is_nan = isinstance(error, NumericsError)
        if is_nan:  # every text that continues from them would end, too
            self._prefixes.clear()
        if is_nan or (isinstance(error, MemoryError | RuntimeError) and not self._writers):
            workspace.decoder.reset()


def _can_share(workspace: Workspace) -> bool:
    """Return whether replies can share a forward."""
    target, drafter = workspace.decoder, workspace.drafter
    verifies_trees = target.draft_support == "tree" and target.model.supports_batches
    return verifies_trees and target.cache.max_size is None and not drafter.stages_in_target
