"""What a reply holds on to while it grows: live arrays, the lazy graph behind them, and bytes.

An array that is not evaluated refers to all from which it is to be computed. Where each token adds
to such a chain, or keeps an array of its own, no byte tells it for long; a GPU counts the buffers.
"""

import gc
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx

from mlxspec.adapted.model import AdaptedModel
from mlxspec.budget import FixedBudget
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.kv.storage import RowStore
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DrafterFailed
from tests.support import zoo
from tests.support.adversaries import RandomTrees
from tests.support.tiny import make_cache, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.tiny_heads_medusa import medusa_drafter

LONG = {"max_position_embeddings": 32_768}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]


def _inner(kind, **changes):
    return zoo.build(kind, text_config=zoo.SETTINGS[kind]["text_config"] | LONG | changes)


MOE = {"num_hidden_layers": 2, "num_experts_per_tok": 2}
FAMILIES = {
    "dense": lambda: tiny_model(**LONG),
    "window": lambda: AdaptedModel(zoo.build("gemma3_text", num_hidden_layers=3, **LONG)),
    "hybrid": lambda: AdaptedModel(_inner("qwen3_5")),
    "MoE": lambda: AdaptedModel(zoo.build("qwen3_moe", **MOE, **LONG)),
    "MLA": lambda: AdaptedModel(zoo.build("deepseek_v3", num_hidden_layers=2, **LONG)),
    "shared KV": lambda: AdaptedModel(_inner("gemma3n")),
}
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.0),
    "penalties": SamplingParams(temperature=1.0, presence_penalty=0.1, frequency_penalty=0.1),
}


def draft_model(target, kind):
    small = tiny_model(seed=6, vocab_size=target.vocab_size, **LONG)
    return DraftModelDrafter(Decoder(small, make_cache(small, kind)), target.vocab_size)


def pool(target, kind):
    return PoolDrafter([SuffixDrafter(), draft_model(target, kind)])


DRAFTERS = {
    "none": lambda target, kind: NoDrafter(),
    "random trees": lambda target, kind: RandomTrees(target.vocab_size),
    "model": draft_model,
    "eagle3": lambda target, kind: eagle3_drafter(target),
    "medusa": lambda target, kind: medusa_drafter(target),
    "exit": lambda target, kind: exit_drafter(target),
    "pool": pool,
}


class SeldomDrafts(FixedBudget):
    """Asks for one draft, the first: what a drafter is told from then on adds up."""

    looks_ahead = True
    num_asked = 0

    def ask(self, limit):
        self.num_asked += 1
        return limit * (self.num_asked == 1)


@dataclass(frozen=True)
class Held:
    """What is held after some tokens of a reply."""

    tokens: int
    arrays: int  # that Python refers to
    handles: int  # these, and the operations from which lazy ones are still to be computed
    bytes: int  # of MLX, without the rows that caches hold

    def grows_from(self, first: "Held") -> str:
        """Return what grew with the tokens; "" if nothing did.

        What is held differs a little from one phase of a round to another, and constants are made
        when a shape comes up for the first time: both are the same however many tokens follow.
        """
        tokens = self.tokens - first.tokens
        most = {"arrays": 24 + tokens / 8, "handles": 24 + tokens / 8, "bytes": 32_768 + 4 * tokens}
        grown = {name: getattr(self, name) - getattr(first, name) for name in most}
        words = [f"{more:,} {name}" for name, more in grown.items() if more > most[name]]
        return " and ".join(words) and f"{' and '.join(words)} in {tokens:,} tokens"


def held_now(tokens=0):
    """Count what is held, once what nobody refers to is collected."""
    gc.collect()
    objects = gc.get_objects()
    arrays = [one for one in objects if type(one) is mx.array]
    rows = sum(a.nbytes for one in objects if isinstance(one, RowStore) for a in one.arrays)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        mx.export_to_dot(str(path), *arrays)
        lazy = path.read_text(encoding="utf-8").count("shape=rectangle")
    return Held(tokens, len(arrays), len(arrays) + lazy, mx.get_active_memory() - rows)


def reply_holds(
    family, drafter="none", kind="full", sampling="greedy", *, at, budget=None, looks=held_now
):
    """Return what a reply holds after each of some numbers of tokens, in ascending order."""
    make = partial(DRAFTERS[drafter], kind=kind)
    engine = make_engine(FAMILIES[family](), None, kind, make_drafter=make, budget=budget)
    params = GenerationParams(
        max_tokens=at[-1] + 8,
        num_draft_tokens=4,
        sampling=SAMPLINGS[sampling],
        ignore_eos=True,
        seed=1,
    )
    tokens, found = 0, []
    for event in engine.generate(PROMPT, params):
        assert not isinstance(event, DrafterFailed), event
        tokens += len(getattr(event, "emit", ()))
        if len(found) < len(at) and tokens >= at[len(found)]:
            found.append(looks(tokens))
    return found
