"""What one reply needs to know of itself: settings, position, text, and when it is over."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from mlxspec.drafts.draft import Draft, RoundOutcome
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import GenerationParams
from mlxspec.reply.readout import LazyRound, Readout
from mlxspec.target.decoder import Decoder
from mlxspec.text import TextStream
from mlxspec.tokenizer import Tokenizer
from mlxspec.trace.events import EmittedToken, FinishReason, TokenKind
from mlxspec.verify.distribution import NodeLaws, TokenCounts
from mlxspec.verify.noise import Noise
from mlxspec.verify.processors import choose, process
from mlxspec.verify.rules import match_rule, verify

StopWhen = Callable[[EmittedToken], bool]
"""Asked of every emitted token in turn: is it to be the last of the reply?"""


def never(token: EmittedToken) -> bool:
    """Let a reply go on until it ends by itself."""
    return False


@dataclass(frozen=True)
class RoundReport:
    """A round cut to what was emitted, with what the events show of it."""

    outcome: RoundOutcome
    accepted: tuple[int, ...]
    emit: tuple[EmittedToken, ...]


class Reply:
    """The state of one reply, changed once a round.

    Attributes:
        params: Its settings.
        root: The token that the next round starts from: emitted, but not in the cache.
        num_emitted: Tokens emitted so far.
        num_rounds: Target forwards so far.
        finish_reason: Why the reply is over, or None while it is not.
        text: The text stream.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        target: Decoder,
        tokenizer: Tokenizer,
        stop_when: StopWhen = never,
    ) -> None:
        """Begin a reply; one of no tokens is over at once."""
        self.params = params
        self.root = prompt[-1]
        self.num_emitted = 0
        self.num_rounds = 0
        self.finish_reason: FinishReason | None = None if params.max_tokens else "length"
        self.text = TextStream(tokenizer.token_bytes, params.stop)
        stop_tokens = frozenset((*target.eos_token_ids, *tokenizer.eos_token_ids))
        self._stop_tokens = frozenset(params.stop_tokens)
        if not params.ignore_eos:
            self._stop_tokens |= stop_tokens
        self._stop_when = stop_when
        self._noise = Noise.of_seed(params.seed)
        self._prompt_length = len(prompt)
        self._said = list(prompt)  # what stands in the text, the root last
        self._vocab_size = target.vocab_size
        self._counts = None
        if params.sampling.has_penalties:
            self._counts = TokenCounts.of(list(prompt), target.vocab_size)
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since the reply was asked for."""
        return time.perf_counter() - self._start

    def draft_budget(self, room: int, num_pending: int = 0) -> int:
        """Return how many nodes are worth drafting.

        The last token of a reply is the target's own, and a node needs a place in the context.

        Args:
            room: Tokens that the context can still take beside the root.
            num_pending: Tokens that will have been emitted then, beside those that are.
        """
        remaining = self.params.max_tokens - self.num_emitted - num_pending - 1
        return max(0, min(self.params.num_draft_tokens, remaining, room - num_pending))

    def goes_on(self, room: int) -> bool:
        """Return whether a round follows that emits one token, unless that token ends the reply."""
        return self.num_emitted + 1 < self.params.max_tokens and room > 0

    @property
    def may_look_ahead(self) -> bool:
        """Whether a round can be begun before the tokens of the one before it are read."""
        return not (
            self.params.sampling.has_penalties
            or self.params.logits_processors
            or self.params.sampler
        )

    def verify(
        self,
        draft: Draft,
        logits: mx.array,
        num_top_tokens: int,
        proposed: DraftTree | None = None,
        num_pending: int = 0,
    ) -> LazyRound:
        """Decide on a draft; everything is lazy.

        Args:
            draft: The draft.
            logits: (n_nodes, V) what the target says after each node.
            num_top_tokens: As in `LazyRound.of`.
            proposed: As in `LazyRound.of`.
            num_pending: Tokens of an earlier round that have not been read yet.
        """
        counts = self._counts.along(draft.tree) if self._counts else None
        processors, sampler = self.params.logits_processors, self.params.sampler
        processed = process(processors, logits, draft.tree, self._said) if processors else None
        laws = NodeLaws(self.params.sampling, logits, counts, processed)
        noise = self.noise.at(self.noise.position + num_pending)
        if sampler is None:
            verdict = verify(draft, laws, noise, self.params.rule)
        else:
            verdict = match_rule(draft.tree, choose(sampler, laws.logprobs))
        keeps_laws = self.params.on_logits is not None
        return LazyRound.of(draft, verdict, laws, num_top_tokens, proposed, keeps_laws=keeps_laws)

    @property
    def noise(self) -> Noise:
        """The chance of the reply, seen from the position of the next token."""
        return self._noise.at(self._prompt_length + self.num_emitted)

    def take(self, readout: Readout) -> RoundReport:
        """Emit the tokens of a round up to the one that ends the reply.

        Returns:
            The round cut after the last emitted token, which becomes the root.

        Raises:
            ValueError: The sampler chose a token outside the vocabulary.
        """
        outcome = readout.outcome
        if not 0 <= outcome.bonus_token < self._vocab_size:
            raise ValueError(
                f"the sampler chose token {outcome.bonus_token}; allowed are 0 to "
                f"{self._vocab_size - 1}"
            )
        target_probs, draft_probs = readout.target_probs, readout.draft_probs
        self.num_rounds += 1
        nodes = outcome.path[1:]
        is_plain = len(outcome.tokens) == 1
        own_kind: TokenKind = (
            "plain" if is_plain else "corrected" if readout.from_residual else "bonus"
        )
        emit: list[EmittedToken] = []
        for node in (*nodes, None):
            if node is None:
                emit.append(self._emit(outcome.bonus_token, own_kind, target_probs[-1], None))
            else:
                q = draft_probs[node - 1] if draft_probs is not None else None
                emit.append(self._emit(outcome.tokens[node], "accepted", target_probs[node], q))
            if self.finish_reason:
                break
        self.root = emit[-1].token
        self._note([token.token for token in emit], readout)
        cut = replace(outcome, path=outcome.path[: len(emit)], bonus_token=self.root)
        return RoundReport(cut, tuple(nodes[: len(emit)]), tuple(emit))

    def _note(self, tokens: list[int], readout: Readout) -> None:
        self._said += tokens
        if self._counts:
            self._counts = self._counts.add(tokens)
        if self.params.on_logits:
            assert readout.laws, "a round keeps its laws where logits are asked for"
            nodes = mx.array(list(readout.outcome.path[: len(tokens)]), mx.int32)
            self.params.on_logits(tokens, readout.laws.adjusted[nodes])

    def _emit(self, token: int, kind: TokenKind, p: float, q: float | None) -> EmittedToken:
        self.num_emitted += 1
        emitted = EmittedToken(token, self.text.push(token), kind, p, q)
        # Asked even where the token ends the reply anyway: a caller counts on being told of all.
        is_last = self._stop_when(emitted)
        if is_last or token in self._stop_tokens or self.text.stopped:
            self.finish_reason = "stop"
        elif self.num_emitted == self.params.max_tokens:
            self.finish_reason = "length"
        return emitted
