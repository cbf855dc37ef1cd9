"""A table of the target's own text, made in minutes, and kept only if it drafts better.

The target writes conversations with itself. A fifth of them is held out: along their answers the
forwards are counted that a pool needs with the new table and with the present one. Nothing is timed
there. All of it goes in small steps, so that a chat can do it while nobody asks.
"""

import hashlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.building import DEFAULT_MAX_BYTES, build_table
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.rows import StoredRows
from mlxspec.drafters.table.seed_table import (
    BESIDE_SEED,
    SeedTable,
    find_seed_table,
    is_used_with,
)
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.loading.heads.file import drafters_for, fingerprint, own_folder
from mlxspec.loading.records import cache_folder
from mlxspec.train.data.corpus import Conversation, DataSettings, load_corpus
from mlxspec.train.data.making import continue_corpus
from mlxspec.train.evaluate import count_along
from mlxspec.train.heads import target_of
from mlxspec.train.methods.table import observe

SETTINGS = DataSettings(  # short answers: little is lost when it is stopped on a slow machine
    batch_size=8, heldout_share=0.2, tries_per_shard=32, max_answer_tokens=160
)
_FEWEST_HELDOUT = 4
_MOST_HELDOUT = 48
_NUM_DRAFT_TOKENS = 8
_PATIENCE_S = 0.02  # of a step that waits for a thread


@dataclass(frozen=True)
class TableProgress:
    """How far a table is."""

    share: float  # of the time for writing, 0 to 1
    num_tokens: int  # of the text, with that of earlier runs


@dataclass(frozen=True)
class TableVerdict:
    """What a new table gains on held-out text, in tokens per forward."""

    after: float
    before: float

    @property
    def is_better(self) -> bool:
        return self.after > self.before

    def __str__(self) -> str:
        figures = f"{self.after:.2f} tokens a forward, before {self.before:.2f}"
        if self.is_better:
            return f"drafts of this model: {figures}"
        return f"the new table is dropped, since it drafts no better: {figures}; its text is kept"


def make_own_table(
    loaded: LoadedModel,
    seconds: float,
    *,
    folder: Path | None = None,
    out: Path | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    clock: Callable[[], float] = perf_counter,
) -> Generator[TableProgress | TableVerdict]:
    """Let a model write for some time, make a table of all it wrote so far; the verdict comes last.

    Between two steps, each of one forward, the model may serve others; only the time of the steps
    counts. Complete conversations are kept in `folder` however this ends. A better table is stored
    as `out`; both are by default where drafters for the target are searched. Raises MlxspecError if
    there is too little text.
    """
    name = fingerprint(loaded.config, loaded.tokenizer)
    text = (folder or cache_folder() / "training" / name) / _folder_name(loaded)
    yield from _write(loaded, text, seconds, clock)
    conversations = load_corpus(text, loaded.config.vocab_size) if any(text.iterdir()) else []
    held_out = _answers(conversations)
    if len(held_out) < _FEWEST_HELDOUT:
        raise MlxspecError(
            f"{len(conversations)} conversations were written, too few for a table and its test; "
            "they are kept: run it again to add to them"
        )
    progress = TableProgress(1.0, sum(len(one.tokens) for one in conversations))
    vocab_size = loaded.config.vocab_size
    seed = find_seed_table(loaded.tokenizer, vocab_size, lambda line: None)
    file = drafters_for(name).get("table")
    before = load_table(file.path, vocab_size) if file is not None else ()

    def build() -> list[StoredRows]:
        if seed is not None:
            seed.wait()
        return build_table(observe(conversations), vocab_size, max_bytes=max_bytes)

    with ThreadPoolExecutor(1) as pool:  # arrays of NumPy: the device stays free
        building = pool.submit(build)
        while not building.done():
            wait([building], _PATIENCE_S)
            yield progress
    rows = building.result()
    present_seed = seed if is_used_with(file) else None
    verdict = TableVerdict(
        after=(yield from _tokens_a_forward(rows, seed, held_out, progress)),
        before=(yield from _tokens_a_forward(before, present_seed, held_out, progress)),
    )
    if verdict.is_better:
        out = out or own_folder() / f"{name}-table.safetensors"
        out.parent.mkdir(parents=True, exist_ok=True)
        card = {
            "target": target_of(loaded),
            "tokens_seen": progress.num_tokens,
            "max_bytes": max_bytes,
            BESIDE_SEED: True,
        }
        save_table(out, rows, vocab_size, tokenizer=loaded.tokenizer.fingerprint, card=card)
    yield verdict


def _folder_name(loaded: LoadedModel) -> str:
    """Return the name of a folder for the text of these weights alone."""
    weights = f"{loaded.name} {loaded.weights} {loaded.revision}"
    return f"own-{hashlib.sha256(weights.encode()).hexdigest()[:8]}"


def _write(
    loaded: LoadedModel, text: Path, seconds: float, clock: Callable[[], float]
) -> Generator[TableProgress]:
    spent = 0.0
    with closing(continue_corpus(loaded, text, SETTINGS)) as writing:
        while spent < seconds:
            began = clock()
            written = next(writing)
            spent += clock() - began
            yield TableProgress(min(spent / seconds, 1.0), written.num_tokens)


def _tokens_a_forward(
    table: Sequence[StoredRows],
    seed: SeedTable | None,
    answers: Sequence[tuple[list[int], list[int]]],
    progress: TableProgress,
) -> Generator[TableProgress, None, float]:
    tokens = forwards = 0
    for prompt, answer in answers:
        drafter = PoolDrafter([SuffixDrafter(), TableDrafter(table, seed_table=seed)])
        said, needed = count_along(drafter, prompt, answer, _NUM_DRAFT_TOKENS)
        tokens, forwards = tokens + said, forwards + needed
        yield progress
    return tokens / forwards


def _answers(conversations: Sequence[Conversation]) -> list[tuple[list[int], list[int]]]:
    """Return prompt and answer of the last held-out answers."""
    return [
        (one.tokens[:start].tolist(), one.tokens[start:end].tolist())
        for one in conversations
        if one.is_heldout
        for start, end in one.spans()
        if start
    ][-_MOST_HELDOUT:]
