"""The exact joint distribution of a reply's first tokens, for one type of each cache kind.

The engine writes a reply for every outcome of every random choice: each tree that can be drawn and
each verdict on it. The truth is mlx-lm: its model, token by token, with its own cache.
"""

import copy
from fractions import Fraction
from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import Quantization
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.engine.engine import Engine
from mlxspec.kv.cache import Cache
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.adversaries import Adversary, FirstRoundOnly
from tests.support.all_outcomes import joint_of_engine
from tests.support.tiny import ToyTokenizer
from tests.support.tiny_adapted import source
from tests.support.truth import exact_distribution
from tests.verify.test_traversal import siblings

VOCAB, LENGTH = 4, 3
PROMPT = [1, 2, 0, 1, 3, 2]
MODELS = {  # type and seed; with these seeds several tokens are probable after each text
    "rows": ("qwen3", 1),
    "windows": ("gemma3_text", 9),
    "rows and states by layer": ("lfm2", 10),
    "states": ("mamba2", 10),
    "rows and states in a layer": ("falcon_h1", 7),
    "a ring": ("qwen3", 1),
    "packed rows": ("qwen3", 3),
    "compressed rows": ("deepseek_v3", 8),
    "rows read as sequences": ("ministral3", 3),
}
MIXED = list(MODELS)[:6]  # what a layer holds of the nodes of a tree that are drawn
RING = {"max_size": 5, "keep": 1}  # less than the prompt
BITS = 4
WIDE = {"packed rows": {"head_dim": 32}}  # a group of packed numbers
CACHES = {  # that are not the model's own: of mlx-lm and of ours
    "a ring": (lambda: RotatingKVCache(**RING), RING),
    "packed rows": (
        lambda: QuantizedKVCache(group_size=32, bits=BITS),
        {"quantization": Quantization.for_head_dim(BITS, 32)},
    ),
}
SAMPLING = {
    "temperature 1": SamplingParams(temperature=1.0),
    "top-p": SamplingParams(temperature=1.0, top_p=0.8),
}


class FixedTrees(Adversary):
    """Two branches in every round, whose tokens depend on the text."""

    def propose(self, root, budget):
        shift = sum(self.tokens) + root
        drafted = [(token + shift) % VOCAB for token in (0, 1, 2, 3)][:budget]
        parents = [-1, 0, 0, 1, 2][: len(drafted) + 1]
        return Draft.from_lists([root, *drafted], parents, ["fixed"] * len(drafted))


class SampledTrees(FirstRoundOnly):
    """Every tree that can be drawn in the first round: two branches of two nodes."""

    shape = TreeShape((2, 1))
    probs = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6), Fraction(0))

    def drawn(self, root):
        first = self.outcomes.choose(siblings(self.probs, 2))
        second = [(3 * token + 1) % VOCAB for token in first]  # each is certain below its parent
        rows = [[float(prob) for prob in self.probs], *np.eye(VOCAB)[second].tolist()]
        tree = self.shape.tree(mx.array([root, *first, *second], mx.int32))
        return Draft(tree, ("sampled",) * 4, sampled_from=mx.array(rows), branching=self.shape)


DRAFTERS = {"fixed trees": lambda outcomes: FixedTrees(), "sampled trees": SampledTrees}


FIRST, SECOND = SAMPLING
CELLS = [  # every two of a kind, a sampling and a drafter
    *((kind, FIRST if at % 2 else SECOND, "fixed trees") for at, kind in enumerate(MODELS)),
    *((kind, SECOND if at % 2 else FIRST, "sampled trees") for at, kind in enumerate(MIXED)),
]


def true_joint(model, sampling, cache):
    """Return the probability of every text, by mlx-lm alone."""
    for token in PROMPT[:-1]:
        model(mx.array([[token]]), cache=cache)
    joint = {(): (1.0, cache)}
    for _ in range(LENGTH):
        longer = {}
        for text, (prob, before) in joint.items():
            own = copy.deepcopy(before)
            logits = model(mx.array([[(*PROMPT, *text)[-1]]]), cache=own)[0, -1]
            probs = exact_distribution(np.array(logits, np.float64), sampling, (), ())
            longer |= {(*text, token): (prob * probs[token], own) for token in range(VOCAB)}
        joint = longer
    return {text: prob for text, (prob, _) in joint.items()}


@pytest.mark.parametrize(("kind", "sampling", "drafter"), CELLS)
def test_the_first_tokens_follow_the_joint_distribution_of_mlx_lm(
    kind, sampling, drafter, monkeypatch
):
    name, seed = MODELS[kind]
    model = source(name, vocab_size=VOCAB, seed=seed, **WIDE.get(kind, {}))
    theirs, ours = CACHES.get(kind, (None, {}))
    own = [theirs() for _ in model.layers] if theirs else make_prompt_cache(model)
    truth = true_joint(model, SAMPLING[sampling], own)
    target = AdaptedModel(model)
    decoder = Decoder(target, Cache.for_model(target.config, **ours))
    engine = Engine(decoder, NoDrafter(), ToyTokenizer(VOCAB))
    params = GenerationParams(
        max_tokens=LENGTH + 2,  # a draft of four nodes needs a reply of five tokens
        sampling=SAMPLING[sampling],
        num_draft_tokens=4,
    )
    joint, num_accepted = joint_of_engine(
        engine, DRAFTERS[drafter], PROMPT, params, LENGTH, monkeypatch
    )
    # A number on the edge of two codes falls to the one or the other as a BLAS rounds it.
    tolerance = 2e-2 if kind == "packed rows" else 1e-5
    for text in product(range(VOCAB), repeat=LENGTH):
        assert joint[text] == pytest.approx(truth[text], abs=tolerance)
    assert sum(joint.values()) == pytest.approx(1, abs=1e-5)
    assert num_accepted > 0.4  # of 3 tokens on average, so drafts take part
