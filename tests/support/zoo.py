"""The zoo: a tiny model of every type of mlx-lm, and the page that says what each type supports.

The settings lie beside this file in `zoo.json`, a table by type. The truth is mlx-lm itself: the
paths of a tree, read token by token through the model's own cache.

    python -m tests.support.zoo > docs/models.md
"""

import importlib
import importlib.metadata
import json
import random
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache
from tests.support.paths import ROOT

SETTINGS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PAGE = ROOT / "docs" / "models.md"
TOLERANCE = 1e-4  # relative; rounding gives 5e-6 at most, a depth that is wrong by one 8e-3

NOT_RUN = {
    "bitnet": "its layers are Metal kernels, so it runs on a Mac only; it is examined there",
    "muse_spark": "its layers are Metal kernels, as those of bitnet",
    "olmo": "mlx-lm ends the process where the package `ai2-olmo` is missing",
    "phi3small": "on a CPU, mlx-lm alone gives logits that are no numbers",
}
"""Types that are not run here, and why."""

PROMPT = [5, 9, 2, 27, 31, 8, 14, 12, 6, 3, 17, 21]
TOKENS = [4, 11, 30, 7, 22, 13, 29]
PARENTS = [-1, 0, 0, 1, 1, 2, 3]
PATH = [0, 1, 3, 6]
CHAIN = list(range(-1, 6))


def build(name: str, **changes: Any) -> nn.Module:
    """Return a model of a type with random weights that depend on nothing but its settings."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)
    # A model's code may change its settings, so it gets a copy.
    settings = json.loads(json.dumps(SETTINGS[name])) | changes
    model = module.Model(module.ModelArgs.from_dict(settings))
    # Zeros and ones of a new model would hide norms, gates and biases.
    model.update(tree_map(_stirred, model.parameters()))
    mx.eval(model.parameters())
    return model


def _stirred(parameter: mx.array) -> mx.array:
    if not mx.issubdtype(parameter.dtype, mx.floating):
        return parameter
    noise = 0.02 * mx.random.normal(parameter.shape)
    return parameter.astype(mx.float32) + noise


def text_of(length: int) -> list[int]:
    """Return a text of random tokens."""
    rng = random.Random(length)
    return [rng.randrange(2, 32) for _ in range(length)]


def true_logits(
    model: nn.Module, prompt: list[int], parents: list[int], after: list[int] | None = None
) -> mx.array:
    """Return (n_nodes, V) logits of a tree of `TOKENS`: every path through mlx-lm's own cache.

    The prompt is read in one piece, the tokens `after` it one by one.
    """
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([prompt]), cache=cache))
    for token in after or []:
        mx.eval(model(mx.array([[token]]), cache=cache))
    logits, caches = [], {-1: cache}
    for node, parent in enumerate(parents):
        caches[node] = deepcopy(caches[parent])
        logits.append(model(mx.array([[TOKENS[node]]]), cache=caches[node])[0, -1])
        mx.eval(logits[-1])
    return mx.stack(logits).astype(mx.float32)


def error(logits: mx.array, truth: mx.array) -> float:
    """Return the largest difference, relative to the largest logit."""
    return float(mx.max(mx.abs(logits - truth)) / mx.max(mx.abs(truth)))


def tree_of(parents: list[int]) -> DraftTree:
    """Return a tree of `TOKENS`."""
    return DraftTree.from_lists(TOKENS, parents)


def decoder_at(model: AdaptedModel, prompt: list[int]) -> Decoder:
    """Return a decoder that has read a prompt."""
    decoder = Decoder(model)
    decoder.observe(prompt)
    return decoder


class Specimen:
    """One model of the zoo.

    The truth has to be asked for before the model is adapted: that changes the model.
    """

    def __init__(self, name: str, prompt: list[int] = PROMPT) -> None:
        self.prompt = prompt
        source = build(name)
        after = [TOKENS[node] for node in PATH[:3]]
        self.truth = {
            "tree": (
                true_logits(source, prompt, PARENTS),
                true_logits(source, prompt, PARENTS, after),
            ),
        }
        self._name = name
        self.model = AdaptedModel(source)

    def true_chain(self) -> mx.array:
        """Return the logits of a chain, from a model that is not adapted; few types need them."""
        return true_logits(build(self._name), self.prompt, CHAIN)

    def error_of_wrong_tree(self) -> float:
        """Return the error of a tree whose last node hangs one level too high."""
        decoder = decoder_at(self.model, self.prompt)
        wrong = [*PARENTS[:-1], PARENTS[PARENTS[-1]]]
        return error(decoder.tree_logits(tree_of(wrong)), self.truth["tree"][0])

    def error_of_tree(self, cache: Cache | None = None) -> float:
        """Return the error of a tree, and of the next one after a path was committed."""
        decoder = Decoder(self.model, cache)
        decoder.observe(self.prompt)
        first = error(decoder.tree_logits(tree_of(PARENTS)), self.truth["tree"][0])
        decoder.forward_tree(tree_of(PARENTS))
        decoder.commit(PATH[:3])
        second = error(decoder.tree_logits(tree_of(PARENTS)), self.truth["tree"][1])
        return max(first, second)

    def error_of_chain(self) -> float:
        """Return the error of a chain."""
        decoder = decoder_at(self.model, self.prompt)
        return error(decoder.tree_logits(tree_of(CHAIN)), self.true_chain())

    def error_of_plain(self) -> float:
        """Return the error of a token by itself."""
        decoder = decoder_at(self.model, [*self.prompt, TOKENS[0]])
        return error(decoder.next_logits()[None], self.true_chain()[:1])


def support(specimen: Specimen) -> tuple[str, str]:
    """Return "tree", "chain", "plain" or "refused", the most that is exact, and why not more."""
    reason = ""
    for name, measure in (
        ("tree", specimen.error_of_tree),
        ("chain", specimen.error_of_chain),
        ("plain", specimen.error_of_plain),
    ):
        try:
            if measure() < TOLERANCE:
                if name == "tree":  # the comparison can fail
                    assert specimen.error_of_wrong_tree() > 10 * TOLERANCE
                return name, reason
            reason = f"as a {name} it gives other logits"
        except (MlxspecError, ValueError, TypeError, AttributeError) as failure:
            reason = f"as a {name}: {failure}".splitlines()[0]
    return "refused", reason


def row_of(name: str) -> str:
    """Return the row of a type in the page, for a type that is run here."""
    try:
        specimen = Specimen(name)
    except MlxspecError as refusal:
        return f"| {name} | refused |  | {refusal} |"
    config = specimen.model.config
    kinds = ["rows"] * bool(config.num_row_stores) + ["state"] * bool(config.num_states)
    kinds += [f"window {window}" for window in config.layer_windows if window]
    drafts, reason = support(specimen)
    return f"| {name} | {drafts} | {', '.join(kinds)} | {reason} |"


HEAD = """# Models

What the adapter does with each model type of mlx-lm {version}. Every type below was built with tiny
random weights, and its logits were compared with those of mlx-lm's own cache, token by token.
"Tree" includes chains, and a chain includes plain decoding. The page is written by
`python -m tests.support.zoo > docs/models.md`; the tests compare each row with a new run.

On your machine, no row of this page is trusted: a model is examined when it is first loaded.

{counts}

| type | drafts | cache | remark |
|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    rows = {name: row_of(name) for name in SETTINGS if name not in NOT_RUN}
    rows |= {name: f"| {name} | refused |  | {reason} |" for name, reason in NOT_RUN.items()}
    drafts = [row.split(" | ")[1] for row in rows.values()]
    counts = ", ".join(f"{kind} {drafts.count(kind)}" for kind in dict.fromkeys(sorted(drafts)))
    version = importlib.metadata.version("mlx-lm")
    lines = [rows[name] for name in sorted(rows, key=str.lower)]
    return HEAD.format(version=version, counts=f"Types: {counts}.") + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
