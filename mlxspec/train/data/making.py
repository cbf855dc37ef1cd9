"""Make training text with the target alone: it writes prompts and answers; loops are dropped.

A shard depends only on its own seed and on the earlier shards. So an interrupted run continues
after the last complete shard and ends with the same files as an uninterrupted one.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

import numpy as np

from mlxspec.batch.open import OpenBatch
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import GROWTH
from mlxspec.loading import LoadedModel
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.reply import Reply
from mlxspec.trace.events import EmittedToken
from mlxspec.train.data import corpus
from mlxspec.train.data.corpus import Conversation, DataSettings
from mlxspec.train.data.dialogue import DialogueWriter, Fault, Request, Task
from mlxspec.train.data.prompts import find_user_frame, read_prompts

T = TypeVar("T")
_USUAL_TOKENS = 150  # mean tokens per try, dropped ones included: sizes the last shard
_FEWEST_TRIES = 32
_LOGIT_BYTES = 4 * 4  # float32: logits, their exponentials, probabilities and Gumbel noise


@dataclass
class DataProgress:
    """The progress of a corpus, with what earlier runs made."""

    num_tokens: int = 0
    num_conversations: int = 0
    num_heldout: int = 0
    dropped: Counter[Fault] = field(default_factory=Counter)  # in this run


def make_corpus(
    loaded: LoadedModel,
    out: str | Path,
    settings: DataSettings,
    on_progress: Callable[[DataProgress], None] = lambda progress: None,
) -> DataProgress:
    """Write a corpus, or the missing shards of one that was interrupted or must grow."""
    out = Path(out)
    maker = _Maker(loaded, settings, on_progress)
    corpus.claim_folder(out, loaded, settings)
    shard = 0
    while maker.progress.num_tokens < settings.num_tokens:
        path = corpus.shard_path(out, shard)
        if path.exists():
            maker.adopt(corpus.load_corpus(path, loaded.config.vocab_size))
        else:
            corpus.save_corpus(path, maker.make(shard))
        shard += 1
    return maker.progress


def continue_corpus(
    loaded: LoadedModel, out: Path, settings: DataSettings
) -> Generator[DataProgress]:
    """Write a corpus without an end, whatever its size; yield after each step of the model.

    A shard is stored when it has `tries_per_shard` conversations, the last one when this is closed.
    """
    maker = _Maker(loaded, settings, lambda progress: None)
    out.mkdir(parents=True, exist_ok=True)
    shard = 0
    while (path := corpus.shard_path(out, shard)).exists():
        maker.adopt(corpus.load_corpus(path, loaded.config.vocab_size))
        shard += 1
    kept = list[Conversation]()
    try:
        for ended in maker.write(shard, count()):
            kept += ended
            if len(kept) >= settings.tries_per_shard:
                corpus.save_corpus(corpus.shard_path(out, shard), kept)
                shard, kept = shard + 1, []
            yield maker.progress
    finally:
        if kept:
            corpus.save_corpus(corpus.shard_path(out, shard), kept)


def estimate_memory(loaded: LoadedModel, settings: DataSettings) -> int:
    """Return the most bytes that `make_corpus` needs: weights, keys and values, logits."""
    config = loaded.config
    length = min(_longest(loaded, settings), config.max_position_embeddings)
    capacity = -(-length // GROWTH) * GROWTH
    per_slot = capacity * config.kv_numbers * loaded.model.dtype.size
    slots = settings.batch_size + 1  # one more: a prefill runs outside the batch
    return loaded.model.nbytes + slots * (per_slot + config.vocab_size * _LOGIT_BYTES)


def is_heldout(conversation: Conversation, share: float) -> bool:
    """Return whether to hold out a conversation; equal first prompts are always on one side."""
    first, _ = conversation.spans()[0]
    digest = corpus.digest_of(conversation.tokens[:first])
    return int.from_bytes(digest[:8], "big") < share * 2**64


class _Maker:
    def __init__(
        self,
        loaded: LoadedModel,
        settings: DataSettings,
        on_progress: Callable[[DataProgress], None],
    ) -> None:
        find_user_frame(loaded.tokenizer, [])  # raises at once if the template is unusable
        config = loaded.config
        self.progress = DataProgress()
        self._loaded, self._settings, self._on_progress = loaded, settings, on_progress
        self._writer = DialogueWriter(
            loaded.tokenizer, settings, config.max_position_embeddings, config.vocab_size
        )
        self._seen: set[bytes] = set()
        prompts = [] if settings.prompts is None else read_prompts(settings.prompts)
        order = np.random.default_rng(settings.seed).permutation(len(prompts)).tolist()
        self._prompts = [prompts[index] for index in order]

    def adopt(self, kept: list[Conversation]) -> None:
        for conversation in kept:
            self._add(conversation)
        self._on_progress(self.progress)

    def make(self, shard: int) -> list[Conversation]:
        """Return the conversations of the next shard, in the order in which they ended."""
        missing = self._settings.num_tokens - self.progress.num_tokens
        num_tries = max(_FEWEST_TRIES, -(-missing // _USUAL_TOKENS))
        num_tries = min(num_tries, self._settings.tries_per_shard)
        before = self.progress.dropped.copy()
        kept = list(chain.from_iterable(self.write(shard, range(num_tries))))
        if kept:
            return kept
        faults = (self.progress.dropped - before).most_common()
        reasons = ", ".join(f"{fault} {count}" for fault, count in faults)
        raise MlxspecError(
            f"all {num_tries} conversations were dropped ({reasons}): give a file of prompts, "
            "allow longer turns, or sample more answers"
        )

    def write(self, shard: int, indices: Iterable[int]) -> Iterator[list[Conversation]]:
        """Write the tries of a shard; yield after each step the conversations that ended in it."""
        tasks = (self._task(shard, index) for index in indices)
        for results in run_tasks(self._loaded, tasks, self._settings.batch_size):
            kept = list[Conversation]()
            for _, result in results:
                if isinstance(result, Conversation) and result.digest in self._seen:
                    result = "double"
                if isinstance(result, Conversation):
                    split = is_heldout(result, self._settings.heldout_share)
                    kept.append(replace(result, is_heldout=split))
                    self._add(kept[-1])
                else:
                    self.progress.dropped[result] += 1
                self._on_progress(self.progress)
            yield kept

    def _task(self, shard: int, index: int) -> Task[Conversation | Fault]:
        """Return one try; every second one starts with a prompt of the file, if any is left."""
        turns: list[str] = []
        if index % 2 == 0:
            number = shard * -(-self._settings.tries_per_shard // 2) + index // 2
            turns = self._prompts[number] if number < len(self._prompts) else []
        rng = np.random.default_rng([self._settings.seed, shard, index])
        return self._writer.write(turns, rng)

    def _add(self, conversation: Conversation) -> None:
        self._seen.add(conversation.digest)
        self.progress.num_tokens += len(conversation.tokens)
        self.progress.num_conversations += 1
        self.progress.num_heldout += conversation.is_heldout


def _longest(loaded: LoadedModel, settings: DataSettings) -> int:
    """Return the largest number of tokens of a conversation, with the whole template per turn."""
    tokenizer = loaded.tokenizer
    frame = find_user_frame(tokenizer, [])
    template = len(tokenizer.encode(frame.header + frame.footer, add_special_tokens=False))
    own = [settings.max_prompt_tokens] * (2 if settings.second_turn_share else 1)
    longest = [own]
    for texts in [] if settings.prompts is None else read_prompts(settings.prompts):
        given = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        longest.append([*given, *own[len(given) :]])
    return max(
        sum(turns) + len(turns) * (template + settings.max_answer_tokens) for turns in longest
    )


# ---- many conversations at once -----------------------------------------------------------------


def run_tasks(
    loaded: LoadedModel, tasks: Iterable[Task[T]], batch_size: int
) -> Iterator[list[tuple[int, T]]]:
    """Run tasks in a batch of at most `batch_size` replies; yield after each step what ended in it.

    The decoder is its own: no other text of the model is changed. When a reply ends, the next
    request gets its slot (Orca, Yu et al. 2022,
    https://www.usenix.org/conference/osdi22/presentation/yu).
    """
    target = Decoder(loaded.model, Cache.for_model(loaded.config))
    batch = Engine(target, NoDrafter(), loaded.tokenizer).open_batch(batch_size=batch_size)
    new, begun = iter(enumerate(tasks)), dict[Reply, tuple[int, Task[T]]]()
    results = list[tuple[int, T]]()

    def advance(index: int, task: Task[T], answer: list[int] | None = None) -> None:
        try:
            asked = next(task) if answer is None else task.send(answer)
        except StopIteration as stop:
            results.append((index, stop.value))
        else:
            begun[_join(batch, asked)] = index, task

    while True:
        for _ in range(batch_size):  # not more: tasks that end at once may have no end together
            if batch.has_room and (following := next(new, None)):
                advance(*following)
        if not begun and not results:
            break
        ended = [reply for reply, _ in batch.step() if reply.has_ended]
        for reply in dict.fromkeys(ended):
            reply.raise_error()
            advance(*begun.pop(reply), list(reply.finished().tokens))
        yield results
        results = []


def _join(batch: OpenBatch, asked: Request) -> Reply:
    written: list[int] = []

    def is_last(token: EmittedToken) -> bool:
        written.append(token.token)
        return asked.is_over(written)

    params = GenerationParams(
        max_tokens=asked.max_tokens,
        sampling=SamplingParams(temperature=asked.temperature),
        seed=asked.seed,
        num_draft_tokens=0,
        ignore_eos=True,  # `is_over` of the request decides instead
    )
    return batch.join(asked.prompt, params, is_last)
