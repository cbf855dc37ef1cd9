"""The engine: draft, forward, verify, commit, update; once around is one target forward.

`Engine._round` is the whole method; timing and events wrap it from outside. Three facts carry it:

- The last emitted token is never in the cache: it is the root of the next tree. A round costs
  exactly one target forward, and plain decoding is the same round with an empty draft.
- Everything up to the verdict is lazy; `LazyRound.read` is the one place that waits for the
  device. A round that is known to be plain is handed to the device before the one before is read.
- Events leave the engine after the commit, so whatever interrupts the iteration leaves a state
  from which the next reply continues correctly.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mlxspec import backend
from mlxspec.batch import BatchReply, BatchRun, BatchSettings, jobs_of
from mlxspec.batch.settings import DEFAULT_BATCH_SIZE, DEFAULT_ROWS_PER_ROUND
from mlxspec.budget import Budget, FixedBudget, Spent
from mlxspec.cost import quick_costs
from mlxspec.decoder import PREFILL_CHUNK, Decoder
from mlxspec.draft import Draft
from mlxspec.drafters.base import Drafter, readers_of
from mlxspec.errors import NumericsError
from mlxspec.events import DrafterFailed, Event, GenerationFinished, PrefillProgress
from mlxspec.guard import Guard
from mlxspec.loading.tokenizer import Tokenizer
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, GenerationParams
from mlxspec.prefix import common_length
from mlxspec.prompt import check_prompt
from mlxspec.readout import LazyRound
from mlxspec.reply import Reply
from mlxspec.reporting import RoundFacts, round_events, started_event
from mlxspec.stats import GenerationStats
from mlxspec.tree import DraftTree

_SHORT_REPLY = 16  # tokens; measuring what a forward costs would take longer


class Engine:
    """Generates text with one target and one drafter.

    Attributes:
        target: The target model with its cache.
        drafter: What proposes the drafts; may be replaced between replies.
        budget: Decides how many draft nodes a round verifies; may be replaced between replies.
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
        budget: Budget | None = None,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.name = name
        self.weights = weights
        self.budget: Budget = budget or FixedBudget()
        self._asked: int | None = None  # nodes to ask of the drafter in the next round
        self._ahead: LazyRound | None = None  # the next round, where the device has it already
        self._guard = Guard(drafter, target.vocab_size)  # of the drafter in this reply
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
        check_prompt(tokens, self.target.vocab_size, self.context_length, self.name)
        return self._generate(tokens, params, should_stop)

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: GenerationParams | Sequence[GenerationParams] | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        rows_per_round: int = DEFAULT_ROWS_PER_ROUND,
        should_stop: Callable[[int], bool] = lambda index: False,
    ) -> Iterator[BatchReply]:
        """Reply to many prompts, several at a time with one target forward per round for all.

        Each reply is that of `generate` to its prompt alone with the same settings and seed, up
        to rounding.

        Args:
            prompts: Texts, taken as they are, or token ids.
            params: Settings for all, or one per prompt. Prompts that are repeated need seeds of
                their own to get replies of their own.
            batch_size: Sequences decoded together at most; others wait for a place.
            rows_per_round: Rows of a forward that drafts may fill; see `BatchSettings`.
            should_stop: Asked with the index of a prompt, once a round and once per chunk of it;
                only that reply is cancelled.

        Returns:
            The replies in the order of the prompts, each as soon as those before are over too.
            The history of `target` is left alone, and so is `drafter`: each sequence gets one
            like it that has learned nothing.

        Raises:
            ValueError: A number is out of range, a prompt is empty or holds a token outside the
                vocabulary, or the drafter needs more than the text.
            ContextLengthError: A prompt is longer than the model's context.
            UnsupportedOperationError: The target's cache rotates.
        """
        settings = BatchSettings(batch_size, rows_per_round).for_prompts(len(prompts))
        jobs = jobs_of(prompts, params, self.target, self.tokenizer)
        costs = self.budget.known(max((len(job.prompt) for job in jobs), default=0))
        run = BatchRun(self.target, self.drafter, self.tokenizer, settings, costs)
        return run.replies(jobs, should_stop)

    def measure_costs(self) -> None:
        """Let the budget find out what forwards cost, before a reply has to wait for that.

        Where something is known of them already, nothing is measured.
        """
        with backend.wired_limit(self.target.model.nbytes):
            measure = partial(quick_costs, self.target, DEFAULT_NUM_DRAFT_TOKENS + 1)
            self.budget.begin(self.drafter.name, 0.0, len(self.target), measure)

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
        reply = Reply(tokens, params, self.target, self.tokenizer)
        yield started_event(
            target=self.name,
            drafter=self.drafter.name,
            weights=self.weights,
            cache=self.target.cache.describe(),
            context_length=self.context_length or 0,
            params=params,
        )
        # What a drafter that broke down reads of the target would break down as well.
        self._guard = Guard(self.drafter, self.target.vocab_size, partial(self.target.attach, ()))
        self.target.attach(readers_of(self.drafter))
        try:
            yield from self._prefill(tokens, reply, should_stop)
            if not reply.finish_reason:
                self._guard.start(tokens, params, reply.noise)
                self._begin_budget(params)
            yield from self._rounds(reply, should_stop)
        except NumericsError:
            self.target.reset()  # no row that led there is to be reused
            raise
        finally:
            self._ahead = None
            self.target.commit([])  # what was ahead, or broke off, is not to be
        assert reply.finish_reason
        yield GenerationFinished(reply.seconds(), reply.finish_reason, reply.text.finish())

    def _rounds(self, reply: Reply, should_stop: Callable[[], bool]) -> Iterator[Event]:
        while not reply.finish_reason:
            if should_stop():
                reply.finish_reason = "cancelled"
            elif self._room() < 0:
                reply.finish_reason = "context"
            else:
                facts = self._round(reply)
                yield from round_events(facts, self.tokenizer.token_bytes)
            while self._guard.faults:
                yield DrafterFailed(reply.seconds(), self.drafter.name, self._guard.faults.pop())
        self.budget.end()

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

    def _round(self, reply: Reply) -> RoundFacts:
        """Draft, forward, verify, commit, update: exactly one target forward."""
        start = time.perf_counter()
        asked = self._ask(reply) if self._asked is None else self._asked
        self._asked = None
        draft = self._guard.propose(reply.root, asked)
        draft = self.budget.cut(draft) if asked else draft
        drafted = time.perf_counter()
        verified, self._ahead = self._ahead or self._verify(reply, draft), None
        self._look_ahead(reply, draft, verified)
        readout = verified.read()
        draft.check_nodes(self.drafter.name, readout.outcome, reply.root, self.target.vocab_size)
        report = reply.take(readout)
        if self._ahead is None:
            self.target.commit(report.outcome.path)
        self._guard.update(report.outcome)
        end = time.perf_counter()
        rows = self.budget.rows(draft.tree.n_nodes)
        spent = Spent(asked, rows, (drafted - start) * 1e3, (end - drafted) * 1e3)
        self.budget.learn(report.outcome, spent)
        return RoundFacts(
            reply.num_rounds, reply.seconds(), len(self.target), draft, report, readout, spent
        )

    def _verify(self, reply: Reply, draft: Draft, num_pending: int = 0) -> LazyRound:
        n_nodes = draft.tree.n_nodes
        safe = draft.bounded(self.target.vocab_size)
        tree = safe.tree.padded(self.budget.rows(n_nodes))
        logits = self.target.logits(self.target.forward_tree(tree))[:n_nodes]
        num_top_tokens = self._guard.active.num_top_tokens
        return reply.verify(safe, logits, num_top_tokens, draft.tree, num_pending)

    # ---- the budget, and the round after this one ------------------------------------------

    def _begin_budget(self, params: GenerationParams) -> None:
        measure = partial(quick_costs, self.target, params.num_draft_tokens + 1)
        is_worth_it = not self._guard.is_plain and params.max_tokens >= _SHORT_REPLY
        self._asked = None
        self.budget.begin(
            self._guard.active.name,
            params.law.temperature,
            len(self.target),
            measure if is_worth_it and params.num_draft_tokens else None,
        )

    def _ask(self, reply: Reply, num_pending: int = 0) -> int:
        limit = reply.draft_budget(self._room(), num_pending)
        return 0 if self._guard.is_plain else self.budget.ask(limit)

    def _look_ahead(self, reply: Reply, draft: Draft, verified: LazyRound) -> None:
        """Hand the next round to the device if it is sure to take place, and to be plain.

        What this round commits is known then: its root, and at which position the next one draws.
        Penalties have to count the token of this round first.
        """
        is_plain = draft.tree.n_nodes == 1 and not reply.params.law.has_penalties
        if not (self.budget.looks_ahead and is_plain and reply.goes_on(self._room())):
            return
        self._asked = self._ask(reply, num_pending=1)
        if self._asked:
            return
        verified.start()
        self.target.commit([0])
        root = verified.verdict.bonus_token[None]
        self._ahead = self._verify(reply, Draft(DraftTree.chain(root)), num_pending=1)
        self._ahead.start()

    def _room(self) -> int:
        """Tokens that the context takes beside the pending root; negative when it is full."""
        if self.context_length is None:
            return 1 << 30
        return self.context_length - len(self.target) - 1
