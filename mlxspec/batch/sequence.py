"""One sequence of a batch: its reply, its drafter, its figures."""

from collections.abc import Callable

import mlx.core as mx

from mlxspec.batch.jobs import Job
from mlxspec.batch.replies import BatchReply
from mlxspec.budget import Spent
from mlxspec.device.backend import values
from mlxspec.drafts.draft import Draft
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.readout import LazyRound, Readout
from mlxspec.reply.reply import Reply, RoundReport
from mlxspec.reply.reporting import RoundFacts, round_events
from mlxspec.trace.events import GenerationFinished, PrefillProgress
from mlxspec.trace.stats import GenerationStats


class BatchSequence:
    """One reply while it is being written.

    Attributes:
        job: The prompt and its settings.
        reply: The state of the reply.
    """

    def __init__(
        self, job: Job, reply: Reply, guard: Guard, token_bytes: Callable[[int], bytes]
    ) -> None:
        self.job = job
        self.reply = reply
        self._guard = guard
        self._token_bytes = token_bytes
        self._stats = GenerationStats()
        self._tokens: list[int] = []
        self._texts: list[str] = []

    def start(self, num_reused: int) -> None:
        """Begin to draft, after the prompt was read; so much of it was known before."""
        length = len(self.job.prompt)
        self._stats.add(PrefillProgress(self.reply.seconds(), length, length, num_reused))
        self._guard.start(self.job.prompt, self.job.params, self.reply.noise)

    def propose(self, most: int) -> Draft:
        """Return a draft of at most `most` nodes, the root not counted.

        Raises:
            ValueError: It is none; the trees of a batch are read before the forward.
        """
        root = self.reply.root
        draft = self._guard.propose(root, 0 if self._guard.is_plain else most)
        tree = draft.tree
        self._guard.check_nodes(draft, values(tree.tokens), values(tree.parents), root)
        return draft

    def verify(self, draft: Draft, logits: mx.array) -> LazyRound:
        """Decide on its draft, given (n_nodes, V) logits; everything is lazy."""
        return self.reply.verify(draft, logits, self._guard.active.num_top_tokens)

    def take(self, readout: Readout) -> RoundReport:
        """Emit the tokens of a round; the path of the report is what the cache is to keep."""
        report = self.reply.take(readout)
        self._tokens += [token.token for token in report.emit]
        self._texts += [token.text for token in report.emit]
        return report

    def learn(
        self, draft: Draft, readout: Readout, report: RoundReport, *, spent: Spent, context: int
    ) -> None:
        """Let drafter and figures learn from a round that was committed."""
        self._guard.update(report.outcome)
        number, now = self.reply.num_rounds, self.reply.seconds()
        facts = RoundFacts(number, now, context, draft, report, readout, spent)
        for event in round_events(facts, self._token_bytes):
            self._stats.add(event)

    def finished(self) -> BatchReply:
        """Return the reply, which is over."""
        reason, text = self.reply.finish_reason, self.reply.text.finish()
        assert reason
        self._stats.add(GenerationFinished(self.reply.seconds(), reason, text))
        return BatchReply(
            index=self.job.index,
            tokens=tuple(self._tokens),
            text="".join([*self._texts, text]),
            finish_reason=reason,
            stats=self._stats.as_dict(),
            fault="; ".join(self._guard.faults),
        )
