"""The engine: one target, one drafter, and the replies that they write.

A reply is an iterator over an open batch of one. Its caller may resume it in another thread at
every step, so each step takes a turn of the device (`device/turns.py`), or start another reply
meanwhile. The target belongs to the newest reply. An older one that continues beside it gets a
decoder of its own, and the target if the newer reply is over by then.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

from mlxspec.batch.open import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_ROWS_PER_ROUND,
    BatchSettings,
    OpenBatch,
)
from mlxspec.batch.run import replies_in_order
from mlxspec.budget import Budget, CostCurve, FixedBudget
from mlxspec.budget.cost import quick_costs
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import memory
from mlxspec.device.memory import Wired
from mlxspec.device.turns import device_turn, free_turn
from mlxspec.drafters.base import Drafter, as_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import EngineClosedError, UnsupportedOperationError
from mlxspec.grammar.compiled import Grammars
from mlxspec.kv.prefix_files import NO_CHAT, PrefixFiles
from mlxspec.kv.prefixes import PrefixCache
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, ChainRule, GenerationParams
from mlxspec.params.checks import function, token_ids
from mlxspec.reply.continuation import StopWhen, never
from mlxspec.reply.events import started_event
from mlxspec.reply.job import Job, job_of, jobs_of
from mlxspec.reply.reply import BatchReply, Reply
from mlxspec.reply.writer import Workspace
from mlxspec.text.prompt import check_prompt
from mlxspec.text.tokenizer import Tokenizer
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import EmittedToken, Event, GenerationStarted, text_of

_MOST_TEXTS = 64  # contexts of stored prefixes: a gigabyte of a tiny model holds millions of tokens
_ALONE = BatchSettings(batch_size=1, rows_per_round=1 << 30)  # a budget limits its drafts
_GONE_WHEN_CLOSED = ("target", "drafter", "_wired")


class Engine:
    """Generates text with one target and one drafter.

    Several threads may use it at once: replies take turns, a round at a time. `with` or `close`
    frees its memory at once.

    Attributes:
        target: The target model with its cache.
        drafter: Proposes the drafts of replies that name no other drafter.
        budget: Decides how many draft nodes a round verifies, in replies that name no other budget.
        tokenizer: The target's tokenizer.
        name: Name of the target, for display.
        weights: Weight type as text, such as "float32".
        chain_rule: Verifies sampled chains if a reply's settings name no rule.
        exact: Whether every reply is exact; see `GenerationParams`.
        prefix_files: Rows of the texts of earlier processes, which replies begin with; or None.
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
        chain_rule: ChainRule = "block",
        exact: bool = False,
        prefix_files: PrefixFiles | None = None,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.name = name
        self.weights = weights
        self.budget: Budget = budget or FixedBudget()
        self.chain_rule = chain_rule
        self.exact = exact
        self.prefix_files = prefix_files
        self._newest: Reply | None = None  # it has the target, until it is over
        self._grammars = Grammars(tokenizer)
        self._at_close: list[weakref.finalize[..., Engine]] = []
        with device_turn():  # the wired limit must not change while another reply computes
            self._wired = Wired(target.model)
        self._is_in_step = False

    @property
    def context_length(self) -> int | None:
        """Maximum number of tokens of a text; None with a rotating cache, which never fills."""
        return self.target.context_length

    def generate(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams | None = None,
        *,
        drafter: Drafter | None = None,
        budget: Budget | None = None,
        kept: Sequence[int] = (),
        should_stop: Callable[[], bool] = lambda: False,
        stop_when: StopWhen = never,
    ) -> Iterator[Event]:
        """Reply to a prompt; yield each event as it happens.

        The output distribution is the target's, whichever drafter is used: at temperature 0 the
        tokens of plain decoding, else tokens of the same joint distribution. A sampled draft must
        have been drawn from the distributions that it states; see `Draft`.

        Args:
            prompt: Text without a chat template, or token ids in a sequence or an array of one
                axis. Cache rows of its prefix are reused.
            params: Settings; None for the defaults.
            drafter: Proposes the drafts of this reply; None for the engine's drafter.
            budget: Decides how many draft nodes are verified; None for the engine's budget.
            kept: Token ids with which the reply starts, such as the first tokens of an earlier
                reply and another one. Penalties, stop strings, the grammar and `max_tokens` treat
                them as tokens of the reply. Later tokens have the target's distribution after the
                prompt and the kept tokens; with the same seed they are drawn with the noise of
                their positions.
            should_stop: Called once per round and once per chunk of the prompt; True cancels the
                reply.
            stop_when: Called with every token before the events of its round; True makes that token
                the last. It cannot use the engine, which is in the middle of a round.

        Raises:
            ValueError: An argument is of the wrong type, the prompt is empty or holds a token
                outside the vocabulary, or the grammar cannot be served or forbids a kept token.
            UnsupportedOperationError: There is a grammar, and the package for it is missing.
            ContextLengthError: The prompt is longer than the model's context.
        """
        job = self._keeping(self.job(prompt, params), kept)
        function("should_stop", should_stop)
        function("stop_when", stop_when)
        if drafter is not None:
            drafter = as_drafter(drafter)
        workspace = Workspace(self.target, drafter or self.drafter, budget or self.budget)
        if kept and job.matcher is not None:
            with device_turn():
                # Refuses kept tokens that the grammar forbids before the iterator starts.
                Reply(job, self.target, self.tokenizer).raise_error()
        return self._generate(job, workspace, should_stop, stop_when)

    def generate_text(
        self, prompt: str | Sequence[int], params: GenerationParams | None = None
    ) -> str:
        """Return the whole text of a reply; see `generate` for the arguments and errors."""
        return "".join(map(text_of, self.generate(prompt, params)))

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: GenerationParams | Sequence[GenerationParams] | None = None,
        *,
        drafter: Drafter | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        rows_per_round: int = DEFAULT_ROWS_PER_ROUND,
        should_stop: Callable[[int], bool] = lambda index: False,
        stop_when: Callable[[int, EmittedToken], bool] = lambda index, token: False,
    ) -> Iterator[BatchReply]:
        """Reply to many prompts, several at a time with one target forward per round for all.

        Each reply equals that of `generate` for its prompt with the same settings and seed, up to
        rounding.

        Args:
            prompts: Texts without a chat template, or token ids.
            params: Settings for all, or one per prompt. Equal prompts need different seeds to get
                different replies.
            drafter: Every slot of the batch gets a new one like it; None for the engine's drafter.
            batch_size: Maximum number of sequences decoded together; others wait for a free slot.
            rows_per_round: Rows of a forward that drafts may fill; see `BatchSettings`.
            should_stop: Called with the index of a prompt, once per round and once per chunk of it;
                True cancels only that reply.
            stop_when: Called with the index of a prompt and each token of its reply, as in
                `generate`.

        Returns:
            The replies in the order of the prompts, each as soon as all before it are over.
                `target` and `drafter` do not change: the batch has its own caches and drafters. An
                error of one reply, such as that of a logits processor, is its `error`, and the
                other replies continue.

        Raises:
            ValueError: An argument is of the wrong type or out of range, a prompt is empty or holds
                a token outside the vocabulary, or the drafter cannot be copied.
            ContextLengthError: A prompt is longer than the model's context.
        """
        settings = BatchSettings(batch_size, rows_per_round)
        jobs = jobs_of(prompts, params, self.target, self._grammars, self._usual)
        function("should_stop", should_stop)
        function("stop_when", stop_when)
        costs = self.budget.recorded(max((len(job.prompt) for job in jobs), default=0))
        batch = self._batch(drafter, settings, costs)
        return replies_in_order(batch, jobs, should_stop, stop_when)

    def open_batch(
        self,
        *,
        drafter: Drafter | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        rows_per_round: int = DEFAULT_ROWS_PER_ROUND,
        prefix_bytes: int = 0,
    ) -> OpenBatch:
        """Return a batch that replies join and leave between rounds, as a server needs it.

        Each reply equals that of `generate` for its prompt with the same settings and seed, up to
        rounding.

        Args:
            drafter: Every slot of the batch gets a new one like it; None for the engine's drafter.
            batch_size: Maximum number of sequences decoded together; others wait.
            rows_per_round: Rows of a forward that drafts may fill; see `BatchSettings`.
            prefix_bytes: Maximum bytes of stored rows, so that prompts with a common prefix need
                not compute it again; at most the rows of 64 texts as long as the context. Prefixes
                need one process and a cache that grows, without recurrent states and windows; any
                other cache keeps only its latest texts.

        Raises:
            ValueError: An argument is out of range, or the drafter cannot be copied.
        """
        settings = BatchSettings(batch_size, rows_per_round)
        most = _MOST_TEXTS * (self.context_length or 0)
        prefixes = PrefixCache(prefix_bytes, most, files=self.prefix_files)
        return self._batch(drafter, settings, self.budget.recorded(0), prefixes)

    def _batch(
        self,
        drafter: Drafter | None,
        settings: BatchSettings,
        costs: CostCurve | None,
        prefixes: PrefixCache | None = None,
    ) -> OpenBatch:
        own = Workspace(self.target, as_drafter(drafter or self.drafter), self.budget)
        return OpenBatch(
            own.like(self.target.apart()),
            self.tokenizer,
            settings,
            costs=costs,
            prefixes=prefixes,
            make_job=self.job,
        )

    def job(self, prompt: str | Sequence[int], params: GenerationParams | None = None) -> Job:
        """Return a prompt and its settings, checked, for `OpenBatch.add`.

        A long prompt and a large grammar take time here. Any thread may call it while others use
        the engine. It raises what `generate` raises.
        """
        target, usual = self.target, self._usual
        return job_of(prompt, params, target, self._grammars, usual, model=self.name)

    @property
    def _usual(self) -> GenerationParams:
        """The settings of replies that leave them to the engine."""
        return GenerationParams(chain_rule=self.chain_rule, exact=self.exact)

    def started(self, params: GenerationParams, drafter: str) -> GenerationStarted:
        """Return the start event of a reply with a drafter's name; an open batch tells none."""
        name, weights = self.name, self.weights
        return started_event(self.target, params, name=name, drafter=drafter, weights=weights)

    def measure_costs(self) -> None:
        """Measure the cost of forwards for the budget now, so that no reply waits for it.

        It measures nothing if the budget already has a cost curve, or if no draft is verified.
        """
        if self.target.draft_support == "none":
            return
        with self._step():
            measure = partial(quick_costs, self.target, DEFAULT_NUM_DRAFT_TOKENS + 1)
            self.budget.begin(self.drafter.name, 0.0, len(self.target), measure)

    def keep_rows(
        self,
        tokens: Sequence[int] | None = None,
        *,
        label: str = NO_CHAT,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write the rows of the latest text into `prefix_files`, if there are any.

        `tokens` is a text to whose beginning this is limited; None for no limit. `label` as in
        `PrefixFiles.add`; `should_stop` is called before each file.
        """
        with self._step():
            target, files = self.target, self.prefix_files
            if files is None or self._newest is not None:
                return
            text, cache = target.history, target.cache
            length = len(text) if tokens is None else common_length(text, tokens)
            text = text[: target.reusable(length)]
            files.add(text, cache.rows, cache.steady, label=label, should_stop=should_stop)

    # ---- closing ---------------------------------------------------------------------------

    def at_close(self, act: Callable[[], object]) -> None:
        """Call `act` once: when the engine is closed or dropped, or the process ends."""
        self._at_close.append(weakref.finalize(self, act))

    def close(self) -> None:
        """Free the memory of target and drafter; a second call does nothing.

        Afterwards every unfinished reply, and every other use of them, raises `EngineClosedError`.
        """
        with self._step():
            if "target" not in self.__dict__:
                return
            # First, because the functions may save what the drafter has learned.
            for finalizer in self._at_close:
                finalizer()
            self._newest = None
            self._wired.release()
            for name in _GONE_WHEN_CLOSED:
                self.__dict__.pop(name, None)
            memory.give_back_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in _GONE_WHEN_CLOSED:  # Python calls this only for missing attributes
            raise EngineClosedError(f"{self.name or 'the engine'} was closed: load it again")
        raise AttributeError(f"an engine has no attribute {name!r}")

    # ---- a reply ---------------------------------------------------------------------------

    def _keeping(self, job: Job, kept: Sequence[int]) -> Job:
        kept = token_ids("kept", kept)
        if not kept:
            return job
        text, name = [*job.prompt, *kept], "the prompt with the kept tokens"
        check_prompt(text, self.target.vocab_size, self.context_length, self.name, name)
        return replace(job, kept=kept)

    def _generate(
        self,
        job: Job,
        workspace: Workspace,
        should_stop: Callable[[], bool],
        stop_when: StopWhen,
    ) -> Iterator[Event]:
        with device_turn():
            prefixes = PrefixCache(0, files=self.prefix_files)
            batch = OpenBatch(workspace, self.tokenizer, _ALONE, prefixes=prefixes)
            reply = batch.add(job, stop_when)
            reply.raise_error()
            reply.draft_with(workspace.drafter)
            started = self.started(job.params, reply.drafter.name)
            self._newest = reply
        try:
            yield started
            yield from reply.take_events()
            while not reply.has_ended:
                # Outside the step: the caller's function may wait, or use this engine itself.
                if not reply.is_over and should_stop():
                    reply.cancel()
                with self._step():
                    self._settle(reply, batch)
                    if batch.waiting:
                        batch.read()
                    else:
                        batch.write()
                reply.raise_error()
                yield from reply.take_events()
        finally:
            self._leave(reply)

    def _settle(self, reply: Reply, batch: OpenBatch) -> None:
        """Let a reply continue in the target, or beside a newer reply that needs the target."""
        if batch.workspace.decoder is not self.target:
            return
        newest = self._newest
        if newest is None or newest is reply or newest.is_over:
            self._newest = reply
        else:
            batch.continue_in(_beside(batch.workspace))

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Hold the device for one step that needs the target as the last step left it.

        A function that a step of a reply calls, such as `stop_when`, cannot use the engine.
        """
        with device_turn():
            if self._is_in_step:
                raise UnsupportedOperationError(
                    f"{self.name or 'the engine'} is in the middle of a round, and a function that "
                    "the round calls cannot use it: use it between two events of the reply"
                )
            self._is_in_step = True
            try:
                yield
            finally:
                self._is_in_step = False

    def _leave(self, reply: Reply) -> None:
        """Release a reply that is over, failed, or lost its reader.

        The garbage collector may call this, in any thread and at any time. If the device is busy
        then, this does nothing, and the next reply rolls the staged rows back.
        """
        with free_turn() as is_free:
            if is_free and self._newest is reply:
                self._newest = None
                self.target.commit([])


def _beside(workspace: Workspace) -> Workspace:
    """Return a workspace for a second text, without a drafter if that serves only one text."""
    decoder = workspace.decoder.apart()
    try:
        return workspace.like(decoder)
    except ValueError:
        return Workspace(decoder, NoDrafter(), workspace.budget.fresh())
