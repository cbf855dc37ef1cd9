"""The engine: draft, forward, verify, commit, update; once around is one target forward.

`Engine._round` is the whole method; timing and events wrap it from outside. Three facts carry it:

- The last emitted token is never in the cache: it is the root of the next tree. A round costs
  exactly one target forward, and plain decoding is the same round with an empty draft.
- Everything up to the verdict is lazy; `read_round` is the one place that waits for the device.
- Events leave the engine after the commit, so whatever interrupts the iteration leaves a state
  from which the next reply continues correctly.

A drafter that breaks down costs its drafts, not the reply: the rounds that follow are plain.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mlxspec import __version__, backend
from mlxspec.decoder import PREFILL_CHUNK, Decoder
from mlxspec.draft import Draft
from mlxspec.drafters.base import CoupledDrafter, Drafter, readers_of
from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import ContextLengthError, MlxspecError
from mlxspec.events import (
    DrafterFailed,
    DraftNode,
    DraftProposed,
    DraftVerified,
    Event,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
)
from mlxspec.loading.tokenizer import Tokenizer
from mlxspec.params import GenerationParams
from mlxspec.prefix import common_length
from mlxspec.readout import read_round
from mlxspec.reply import Reply, RoundReport
from mlxspec.stats import GenerationStats
from mlxspec.text import TextStream
from mlxspec.verify import verify

_FAULTS = (MlxspecError, RuntimeError, ValueError, MemoryError)
"""What a drafter meets in the world: too little memory, too long a text, weights that do not fit.
Anything else is a mistake in its code, and is not hidden."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Round:
    """One round as it happened, before it becomes events."""

    draft: Draft
    report: RoundReport
    draft_probs: Sequence[float] | None
    draft_s: float
    target_s: float


class Engine:
    """Generates text with one target and one drafter.

    Attributes:
        target: The target model with its cache.
        drafter: What proposes the drafts; may be replaced between replies.
        tokenizer: The target's tokenizer.
        name: Name of the target, for people.
        weights: Weight type in words, such as "float32".
        context_length: Tokens that fit; None with a rotating cache, which never fills.
    """

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        tokenizer: Tokenizer,
        *,
        name: str = "",
        weights: str = "",
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.name = name
        self.weights = weights
        self._active = drafter  # drafts in this reply; none once it broke down
        self._faults: list[str] = []
        rotates = target.cache.max_size is not None
        self.context_length = None if rotates else target.model.config.max_position_embeddings

    def generate(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Reply to a prompt; yields what happens, as it happens.

        The output law is the target's own, whatever the drafter: at temperature 0 the tokens of
        plain decoding, else tokens of the same joint law.

        Args:
            prompt: Text, taken as it is, or token ids. Rows of the cache that already hold its
                beginning are reused.
            params: Settings.
            should_stop: Asked once a round and once per chunk of the prompt.

        Raises:
            ValueError: The prompt is empty or holds a token outside the vocabulary.
            ContextLengthError: The prompt is longer than the model's context.
        """
        params = params or GenerationParams()
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        self._check_prompt(tokens)
        return self._generate(tokens, params, should_stop)

    def _generate(
        self, tokens: list[int], params: GenerationParams, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        stats = GenerationStats()
        syncs = backend.host_syncs()
        with backend.wired_limit(self.target.model.nbytes):
            for event in self._events(tokens, params, should_stop):
                stats.add(event)
                if isinstance(event, GenerationFinished):
                    figures = stats.as_dict() | {"host_syncs": backend.host_syncs() - syncs}
                    figures["peak_memory_gb"] = backend.peak_memory_gb()
                    event = GenerationFinished(event.ts, event.reason, event.text, figures)
                yield event

    def _events(
        self, tokens: list[int], params: GenerationParams, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        text = TextStream(self.tokenizer.token_bytes, params.stop)
        stop_tokens = (*self.target.eos_token_ids, *self.tokenizer.eos_token_ids)
        reply = Reply(tokens, params, text, stop_tokens, self.target.vocab_size)
        yield self._started(params)
        self._active, self._faults = self.drafter, []
        self.target.attach(readers_of(self.drafter))
        yield from self._prefill(tokens, reply, should_stop)
        if not reply.finish_reason:
            self._attempt(lambda: self._start_drafter(tokens, reply))
        while not reply.finish_reason:
            if should_stop():
                reply.finish_reason = "cancelled"
            elif self._room() < 0:
                reply.finish_reason = "context"
            else:
                yield from self._report(reply, self._round(reply))
            while self._faults:
                yield DrafterFailed(reply.seconds(), self.drafter.name, self._faults.pop())
        yield GenerationFinished(reply.seconds(), reply.finish_reason, text.finish())

    def _prefill(
        self, tokens: list[int], reply: Reply, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        """Read all but the last token, which is the first root."""
        reused = common_length(self.target.history, tokens[:-1])
        self.target.rollback_to(reused)
        for start in range(reused, len(tokens) - 1, PREFILL_CHUNK):
            if should_stop():
                reply.finish_reason = "cancelled"
                return
            self.target.observe(tokens[start : min(start + PREFILL_CHUNK, len(tokens) - 1)])
            done = len(self.target) + 1
            yield PrefillProgress(reply.seconds(), done, len(tokens), reused)
        if reused == len(tokens) - 1:
            yield PrefillProgress(reply.seconds(), len(tokens), len(tokens), reused)

    def _start_drafter(self, tokens: list[int], reply: Reply) -> None:
        params, noise = reply.params, reply.noise
        if isinstance(self._active, CoupledDrafter):
            self._active.couple(noise if params.exact_seed else None)
        self._active.start(tokens, params.law, noise.key_for("draft"))

    def _round(self, reply: Reply) -> _Round:
        """Draft, forward, verify, commit, update: exactly one target forward."""
        start = time.perf_counter()
        draft = self._propose(reply)
        drafted = time.perf_counter()
        logits = self.target.logits(self.target.forward_tree(draft.tree))
        laws = reply.laws_for(draft, logits)
        verdict = verify(draft, laws, reply.noise, reply.params.rule)
        readout = read_round(draft, verdict, laws, self._active.num_top_tokens)
        report = reply.take(readout)
        self.target.commit(report.outcome.path)
        self._attempt(lambda: self._active.update(report.outcome))
        end = time.perf_counter()
        return _Round(draft, report, readout.draft_probs, drafted - start, end - drafted)

    def _propose(self, reply: Reply) -> Draft:
        budget = reply.draft_budget(self._room())
        empty = Draft.empty(reply.root)
        if not budget:
            return empty
        draft = self._attempt(lambda: self._active.propose(reply.root, budget)) or empty
        if draft.tree.n_nodes - 1 > budget:
            raise ValueError(
                f"the drafter {self.drafter.name!r} proposed {draft.tree.n_nodes - 1} nodes; "
                f"it was given a budget of {budget}"
            )
        return draft

    def _attempt(self, act: Callable[[], T]) -> T | None:
        """Let the drafter act; if it breaks down, the rest of the reply goes without it."""
        try:
            return act()
        except _FAULTS as error:
            self._faults.append(str(error) or type(error).__name__)
            self._active = NoDrafter()
            self.target.attach(())  # what it reads of the target would break down as well
            return None

    def _report(self, reply: Reply, done: _Round) -> Iterator[Event]:
        """Turn a finished round into its events."""
        r, now, report = reply.num_rounds, reply.seconds(), done.report
        context = len(self.target)
        tokens, parents = report.outcome.tokens, report.outcome.parents
        target_ms = done.target_s * 1e3
        if len(tokens) == 1:
            yield PlainDecoded(r, now, report.emit, target_ms, context)
            return
        nodes = tuple(
            DraftNode(
                index=index,
                parent=parents[index],
                token=tokens[index],
                text=self.tokenizer.token_bytes(tokens[index]).decode("utf-8", "replace"),
                prob=done.draft_probs[index - 1] if done.draft_probs is not None else None,
                source=done.draft.sources[index - 1],
            )
            for index in range(1, len(tokens))
        )
        started = now - done.target_s
        yield DraftProposed(r, started, tokens[0], nodes, done.draft_s * 1e3)
        rollback = len(tokens) - len(report.outcome.path)
        yield DraftVerified(r, now, report.accepted, report.emit, target_ms, rollback, context)

    def _room(self) -> int:
        """Tokens that the context takes beside the pending root; negative when it is full."""
        if self.context_length is None:
            return 1 << 30
        return self.context_length - len(self.target) - 1

    def _check_prompt(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise ValueError("the prompt is empty: give at least one token")
        if self.context_length is not None and len(tokens) > self.context_length:
            raise ContextLengthError(
                f"the prompt has {len(tokens)} tokens; {self.name or 'the model'} takes "
                f"{self.context_length}: shorten it, or use a rotating cache (max_kv_size)",
                self.context_length,
            )
        bad = [token for token in tokens if not 0 <= token < self.target.vocab_size]
        if bad:
            raise ValueError(
                f"token {bad[0]} is not in the vocabulary of 0 to {self.target.vocab_size - 1}"
            )

    def _started(self, params: GenerationParams) -> GenerationStarted:
        facts = backend.facts()
        law = params.law
        return GenerationStarted(
            target=self.name,
            drafter=self.drafter.name,
            device=facts.device,
            blas=facts.blas,
            weights=self.weights,
            cache=self.target.cache.describe(),
            lossless=_guarantee(params),
            sampling=law.describe(),
            seed=params.seed,
            context_length=self.context_length or 0,
            versions={"mlxspec": __version__, "mlx": facts.mlx, "python": facts.python},
        )


def _guarantee(params: GenerationParams) -> str:
    if params.law.is_greedy:
        return "greedy"
    return "exact seed" if params.exact_seed else "sampled law"
