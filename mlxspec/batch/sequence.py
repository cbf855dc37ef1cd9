"""One sequence of a batch: its reply, its drafter, its figures."""

from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx

from mlxspec.batch.jobs import Job
from mlxspec.batch.replies import BatchReply
from mlxspec.device.backend import values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.reply.continuation import Continuation
from mlxspec.reply.drafter_guard import Guard
from mlxspec.reply.events import round_events
from mlxspec.reply.host_round import HostRound
from mlxspec.reply.pending_round import PendingRound
from mlxspec.trace.events import GenerationFinished, PrefillProgress
from mlxspec.trace.reply_text import ReplyText
from mlxspec.trace.stats import GenerationStats


class BatchSequence:
    """One reply while it is being written.

    Attributes:
        job: The prompt and its settings.
        continuation: The prompt and the emitted text.
    """

    def __init__(
        self,
        job: Job,
        continuation: Continuation,
        guard: Guard,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.job = job
        self.continuation = continuation
        self._guard = guard
        self._token_bytes = token_bytes
        self._stats = GenerationStats()
        self._tokens: list[int] = []
        self._text = ReplyText()

    def start(self, num_reused: int) -> None:
        """Start the drafter after the prefill; `num_reused` prompt tokens needed none."""
        length = len(self.job.prompt)
        self._stats.add(PrefillProgress(self.continuation.seconds(), length, length, num_reused))
        self._guard.start(self.job.prompt, self.job.params, self.continuation.noise)

    def propose(self, most: int) -> Draft:
        """Return a draft of at most `most` nodes, the root not counted.

        Raises:
            ValueError: It is no valid tree; a batch checks its trees before the forward.
        """
        root = self.continuation.root
        is_plain = self._guard.is_plain
        draft = self._guard.propose(root, self._guard.num_certain(most) if is_plain else most)
        tree = draft.tree
        self._guard.check_nodes(draft, values(tree.tokens), values(tree.parents), root)
        return draft

    def verify(self, draft: Draft, logits: mx.array) -> PendingRound | HostRound:
        """Verify its draft, given (n_nodes, V) logits; everything is lazy."""
        return self.continuation.verify(draft, logits, self._guard.active.num_top_tokens)

    def emit(self, read: Round, pending: PendingRound | HostRound) -> Round:
        """Emit the tokens of a round; the path of the result is the one to commit."""
        round = self.continuation.emit(read, pending.distributions)
        self._tokens += [token.token for token in round.emitted]
        self._text.pieces += [(token.channel, token.text) for token in round.emitted]
        return round

    def learn(self, round: Round) -> None:
        """Update drafter and figures with a committed round."""
        self._guard.update(round)
        for event in round_events(
            replace(round, ended_s=self.continuation.seconds()), self._token_bytes
        ):
            self._stats.add(event)

    def finished(self) -> BatchReply:
        """Return the reply; call it when the sequence is over."""
        reason, rest = self.continuation.finish_reason, self.continuation.text.finish()
        assert reason
        end = GenerationFinished(self.continuation.seconds(), reason, rest)
        self._stats.add(end)
        self._text.add(end)
        return BatchReply(
            index=self.job.index,
            tokens=tuple(self._tokens),
            text=self._text.text,
            reasoning=self._text.reasoning,
            answer=self._text.answer,
            finish_reason=reason,
            stats=self._stats.as_dict(),
            fault="; ".join(self._guard.faults),
        )
