"""The state of one reply: settings, position, text, next-token distributions, and its end.

How drafts are verified stands in `verification.py`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.grammar.constraint import Constraint, Path
from mlxspec.reply.job import Job
from mlxspec.reply.loops import LoopFinder
from mlxspec.reply.pending import PendingRound
from mlxspec.reply.verification import Verification
from mlxspec.text.reasoning import ChannelTracker
from mlxspec.text.stream import TextStream
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.events import EmittedToken, FinishReason, TokenKind
from mlxspec.trace.stats import FORCED
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise

_MOST_ENDING = 256  # tokens of a forced end; every round searches for one

StopWhen = Callable[[EmittedToken], bool]
"""Called with every emitted token in order; True makes it the last token of the reply."""


def never(token: EmittedToken) -> bool:
    """Return False: the reply continues until it ends by itself."""
    return False


class Continuation:
    """The text of one reply and the state that decides its next tokens; it changes once per round.

    Attributes:
        tokens: Prompt tokens and emitted tokens.
        root: The last of these, the root of the next draft tree. It is not in the cache yet.
        num_emitted: Tokens of the reply so far, including the `kept` ones with which it started.
        num_rounds: Target forwards so far.
        finish_reason: Why the reply ended, or None before its end.
        begun_at: Start of the reply, in `perf_counter` seconds.
    """

    def __init__(
        self, job: Job, target: Decoder, tokenizer: Tokenizer, stop_when: StopWhen = never
    ) -> None:
        """Start a reply; with `max_tokens` 0 it ends at once.

        It continues in the channel where the begun tokens of the prompt end. The target provides
        stop tokens and vocabulary size.
        """
        params = job.params
        self.job, self.params, self.stop_when = job, params, stop_when
        self.tokens = list(job.prompt)
        self.root = job.prompt[-1]
        self.num_emitted = 0
        self.kept: tuple[EmittedToken, ...] = ()
        self.num_rounds = 0
        self.finish_reason: FinishReason | None = None if params.max_tokens else "length"
        self.text = TextStream(tokenizer.token_bytes, params.stop, tokenizer.special)
        before = self.tokens[: len(job.prompt) - job.num_begun]
        self._channels = ChannelTracker(
            tokenizer.reasoning, before, tokenizer.token_bytes, params.think_tokens
        )
        for token in self.tokens[len(before) :]:
            self._channels.next(token)
        self._stop_tokens = frozenset(params.stop_tokens)
        if not params.ignore_eos:
            self._stop_tokens |= {*target.eos_token_ids, *tokenizer.eos_token_ids}
        self._loops = LoopFinder() if params.stop_repeats else None
        self._noise = Noise.of_seed(params.seed)
        self._vocab_size, self._tokenizer = target.vocab_size, tokenizer
        self._constraint: Constraint | None = None
        self._verification = Verification(params, self.tokens, target.vocab_size)
        self.begun_at = time.perf_counter()

    def constrain(self) -> Constraint | None:
        """Apply the grammar and the limit of reasoning, if any; call it before the first round."""
        matcher, tokenizer = self.job.matcher, self._tokenizer
        if matcher is None and not self._channels.is_limited:
            return None
        ends = [] if self.params.ignore_eos else self._stop_tokens
        # A stop token with text belongs to what a grammar describes.
        ends = [token for token in ends if not tokenizer.token_bytes(token)]
        size = self._vocab_size if matcher is None else tokenizer.vocab_size
        self._constraint = Constraint(matcher, size, ends, self._channels)
        self._verification.constrain(self._constraint)
        if self.finish_reason is None and self._constraint.is_complete:
            self.finish_reason = "stop"
        return self._constraint

    def keep(self, tokens: Sequence[int]) -> None:
        """Start with tokens as if they had been emitted; call it before the first round.

        Tokens after one that ends the reply are left out. A ValueError names one that the grammar
        forbids.
        """
        emitted = list[EmittedToken]()
        for token in tokens:
            if self.finish_reason:
                break
            if self._constraint is not None and self._constraint.forbids(token):
                raise ValueError(
                    f"the grammar forbids token {token} in place {self.num_emitted + 1} of the "
                    "reply: keep fewer tokens, choose another one, or take the grammar away"
                )
            emitted.append(self._emit(token, "kept", None, None))
        self.kept = tuple(emitted)
        self._add([token.token for token in emitted])

    def seconds(self) -> float:
        """Return the seconds since this reply was created."""
        return time.perf_counter() - self.begun_at

    def draft_budget(self, room: int, num_pending: int = 0) -> int:
        """Return the largest useful number of draft nodes.

        The target itself adds the last token of a reply, and every node needs one position of the
        context. `room` is the number of tokens that still fit into the context after the root;
        `num_pending` counts the tokens of a round that is computed but not emitted yet.
        """
        remaining = self.params.max_tokens - self.num_emitted - num_pending - 1
        return max(0, min(self.params.num_draft_tokens, remaining, room - num_pending))

    def goes_on(self, room: int) -> bool:
        """Return whether another round follows one that emits one token and does not end it."""
        return self.num_emitted + 1 < self.params.max_tokens and room > 0

    @property
    def may_look_ahead(self) -> bool:
        """Whether a round can start before the host has the tokens of the previous round."""
        return not self._verification.reads_text

    def ending(self, room: int) -> Path:
        """Return the tokens with which the reply certainly ends; () if its end is not certain.

        Samplers, processors and logit callbacks need a forward for every token, so they exclude
        this. `room` is the number of tokens that still fit into the context after the root.
        """
        params, remaining = self.params, self.params.max_tokens - self.num_emitted
        needs_every_forward = params.sampler or params.logits_processors or params.on_logits
        if self._constraint is None or needs_every_forward or not params.num_draft_tokens:
            return ()
        most = min(remaining, room, _MOST_ENDING)
        run = self._constraint.forced_run(most)
        return run if len(run) == remaining else self._constraint.ending(most)

    @property
    def noise(self) -> Noise:
        """The random numbers of the reply, at the position of the next token."""
        return self._noise.at(len(self.job.prompt) + self.num_emitted)

    def verify(
        self,
        draft: Draft,
        logits: mx.array,
        num_top_tokens: int,
        safe: Draft | None = None,
        num_pending: int = 0,
    ) -> PendingRound:
        """Verify a draft; everything is lazy.

        The (n_nodes, V) logits are the target's after each node. `safe` is the draft as the target
        computed it, if that is not `draft` itself. `num_pending` counts the tokens of an earlier
        round that the host does not have yet.
        """
        noise = self.noise.at(self.noise.position + num_pending)
        return self._verification.verify(draft, safe or draft, logits, noise, num_top_tokens)

    def emit(self, read: Round, distributions: NodeDistributions | None) -> Round:
        """Emit the tokens of a round; return it, cut after the token that ends the reply.

        The last emitted token becomes the root. `distributions` after the nodes are needed if
        `on_logits` is set. A ValueError says that the sampler chose a token that does not exist.
        """
        if not 0 <= read.bonus_token < self._vocab_size:
            raise ValueError(
                f"the sampler chose token {read.bonus_token}; allowed are 0 to "
                f"{self._vocab_size - 1}"
            )
        self.num_rounds += 1
        emitted: list[EmittedToken] = []
        for node in (*read.path[1:], None):
            token, kind, p, q = _token_fields(read, node)
            is_forced = self._channels.forced is not None
            emitted.append(self._emit(token, "forced" if is_forced else kind, p, q))
            if self.finish_reason:
                break
        path = read.path[: len(emitted)]
        tokens = [token.token for token in emitted]
        self._add(tokens)
        if self.params.on_logits:
            assert distributions, "a round keeps its distributions where on_logits is set"
            self.params.on_logits(tokens, distributions.adjusted[mx.array(list(path), mx.int32)])
        return replace(
            read,
            path=path,
            bonus_token=self.root,
            number=self.num_rounds,
            emitted=tuple(emitted),
            emitted_nodes=tuple(read.path[1:][: len(emitted)]),
        )

    def _add(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.root = self.tokens[-1]
        self._verification.add(tokens)

    def _emit(self, token: int, kind: TokenKind, p: float | None, q: float | None) -> EmittedToken:
        self.num_emitted += 1
        text, channel = self.text.push(token), self._channels.next(token)
        emitted = EmittedToken(token, text, kind, p, q, channel)
        # Called even if the token ends the reply anyway: callers rely on seeing every token.
        is_last = self.stop_when(emitted)
        is_loop = self._loops is not None and self._loops.push(token)
        is_whole = False
        if self._constraint is not None:
            self._constraint.read(token, is_kept=kind == "kept")
            is_whole = self._constraint.is_complete
        if is_last or token in self._stop_tokens or self.text.ended_by or is_whole:
            self.finish_reason = "stop"
        elif self.num_emitted == self.params.max_tokens:
            self.finish_reason = "length"
        elif is_loop:
            self.finish_reason = "repeating"
        return emitted


def _token_fields(read: Round, node: int | None) -> tuple[int, TokenKind, float, float | None]:
    """Return token, kind, p and q of an accepted node, or of the bonus token for None."""
    target_probs, draft_probs = read.target_probs, read.draft_probs
    if node is None:
        drafted: TokenKind = "corrected" if read.from_residual else "bonus"
        kind: TokenKind = "plain" if len(read.tokens) == 1 else drafted
        return read.bonus_token, kind, target_probs[-1], None
    q = draft_probs[node - 1] if draft_probs is not None else None
    written: TokenKind = "forced" if read.sources[node - 1] == FORCED else "accepted"
    return read.tokens[node], written, target_probs[node], q
