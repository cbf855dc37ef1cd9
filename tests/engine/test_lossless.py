"""The lossless matrix: every drafter, cache and law against the target recomputed.

Greedy replies must equal, token for token, what the target says when each prefix is computed
anew in NumPy. For sampled replies every law that a round hands to verification is compared with
the exact law of its node's own prefix, and every q with the law that it claims to be; that the
rules turn such laws into the target's is proved by enumeration in `tests/verify`, and that all of
it together does is tested in `verify/test_joint_distribution.py`. Drafters whose
drafts are not what they say are in the matrix too: no token of theirs is told.
"""

from functools import partial

import numpy as np
import pytest

import mlxspec.reply.verification as verification
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.drafters.search.earlier import EarlierTexts
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.pending import HostRound
from tests.support.adversaries import (
    AlwaysRight,
    AlwaysWrong,
    DrawnTree,
    Duplicates,
    LawOfNothing,
    NoLaw,
    RandomTrees,
    SaysDeeper,
    UniformChain,
)
from tests.support.drafting import pool_with_seed_table
from tests.support.pairwise import each_value, pairwise
from tests.support.shadow import Shadow
from tests.support.tiny import emitted, make_cache, make_engine, near_model, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Target, exact_distribution

FAMILIES = ("llama", "qwen2")
CACHES = ("full", "rotating", "int8", "int4")
VOCAB = 24
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 12  # with the prompt well past the ring of 12
SAMPLING = {
    "temperature": SamplingParams(temperature=0.8),
    "all filters": SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.02),
    "mlx-lm's order": SamplingParams(
        temperature=1.6, top_p=0.9, min_p=0.03, top_k=9, xtc_probability=0.5, filter_order="mlx-lm"
    ),
    "penalties and bias": SamplingParams(
        temperature=1.0,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        logit_bias={2: 1.5, 5: -3.0},
    ),
}
MODELS = {family: tiny_model(family, vocab_size=VOCAB) for family in FAMILIES}
TARGETS = {(f, c): Target(MODELS[f], c) for f in FAMILIES for c in CACHES}
TARGETS["llama", "rotating-int8"] = Shadow(MODELS["llama"], "rotating-int8")


def draft_model(family, kind):
    model = near_model(family)
    return Decoder(model, make_cache(model, kind))


def half_right(family, kind):
    """The greedy reply with every fifth token another one."""
    right = TARGETS[family, kind].greedy(PROMPT, LENGTH)
    return [(token + (place % 5 == 3)) % VOCAB for place, token in enumerate(right)]


def known(text):
    """What a drafter knows that has seen a text in another session."""
    texts = EarlierTexts()
    texts.add([text])
    return texts


UNTRAINED = {
    "none": lambda family, kind: NoDrafter(),
    **{
        name: lambda family, kind, make=make: make()
        for name, make in HOST_DRAFTERS.items()
        if name != "none"
    },
    "pool with a seed table": lambda family, kind: pool_with_seed_table(VOCAB),
    "suffix of other sessions": lambda family, kind: SuffixDrafter(
        earlier=known(PROMPT + half_right(family, kind))
    ),
    "model": lambda family, kind: DraftModelDrafter(draft_model(family, kind), VOCAB),
    "always right": lambda family, kind: AlwaysRight(
        PROMPT + TARGETS[family, kind].greedy(PROMPT, LENGTH)
    ),
    "always wrong": lambda family, kind: AlwaysWrong(
        PROMPT + TARGETS[family, kind].greedy(PROMPT, LENGTH)
    ),
    "prediction": lambda family, kind: PredictionDrafter(half_right(family, kind), NoDrafter()),
    "prediction beside a model": lambda family, kind: PredictionDrafter(
        half_right(family, kind), DraftModelDrafter(draft_model(family, kind), VOCAB)
    ),
    "random trees": lambda family, kind: RandomTrees(VOCAB),
    "duplicates": lambda family, kind: Duplicates(VOCAB),
    "uniform chain": lambda family, kind: UniformChain(VOCAB),
    "drawn tree": lambda family, kind: DrawnTree(VOCAB),
    "no law": lambda family, kind: NoLaw(VOCAB),
    "law of nothing": lambda family, kind: LawOfNothing(VOCAB),
    "says it is deeper": lambda family, kind: SaysDeeper(VOCAB),
}
TRAINED = {  # with random weights, on the target's own decoder
    "medusa": medusa_drafter,
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "exit": partial(exit_drafter, threshold=0.01),
    "pool of trained heads": lambda target: PoolDrafter(
        [SuffixDrafter(), medusa_drafter(target), eagle3_drafter(target)]
    ),
}
DRAFTERS = (*UNTRAINED, *TRAINED)


def engine_for(drafter, family, kind="full", tokenizer=None):
    """The engine of a cell of the matrix."""
    if drafter in UNTRAINED:
        own = UNTRAINED[drafter](family, kind)
        return make_engine(MODELS[family], own, kind, tokenizer=tokenizer)
    make = TRAINED[drafter]
    return make_engine(MODELS[family], None, kind, make_drafter=make, tokenizer=tokenizer)


def greedy(drafter, family, kind):
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6)
    return emitted(engine_for(drafter, family, kind).generate(PROMPT, params))


@pairwise(drafter=DRAFTERS, family=FAMILIES, kind=CACHES)
def test_greedy_tokens_are_those_of_the_target(drafter, family, kind):
    assert greedy(drafter, family, kind) == TARGETS[family, kind].greedy(PROMPT, LENGTH)


@each_value(
    drafter=("none", "pool", "random trees", "model", *TRAINED),
    kind=["int8", "int4", "rotating-int8"],
)
def test_greedy_tokens_are_those_of_the_target_where_packed_rows_are_multiplied(
    drafter, kind, monkeypatch
):
    monkeypatch.setattr(backend, "is_cpu", lambda: False)  # as on a GPU
    assert greedy(drafter, "llama", kind) == TARGETS["llama", kind].greedy(PROMPT, LENGTH)


@pytest.mark.parametrize("drafter", ["random trees", "model", *TRAINED])
def test_greedy_tokens_are_those_of_the_target_under_penalties(drafter):
    sampling = SamplingParams(repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.4)
    engine = engine_for(drafter, "llama")
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6, sampling=sampling)
    tokens = list(PROMPT)
    for _ in range(LENGTH):
        here = TARGETS["llama", "full"].distribution(tuple(tokens), sampling, len(PROMPT))
        tokens.append(int(np.argmax(here)))
    assert emitted(engine.generate(PROMPT, params)) == tokens[len(PROMPT) :]


class LawSpy:
    """Stands in for `verify` in the engine and keeps what it was given."""

    def __init__(self, monkeypatch):
        self.rounds = []
        monkeypatch.setattr(verification, "verify", self)
        monkeypatch.setattr(verification, "HostRound", self.on_host)
        self._verify = right_verify

    def __call__(self, draft, distributions, key, chain_rule):
        self.rounds.append((draft, distributions))
        return self._verify(draft, distributions, key, chain_rule)

    def on_host(self, draft, distributions, *others):
        self.rounds.append((draft, distributions))
        return HostRound(draft, distributions, *others)


right_verify = verification.verify


def rounds(engine, params, spy):
    """The draft and the distributions of each round, and the text up to and with each node."""
    text = list(PROMPT)
    for event in engine.generate(PROMPT, params):
        if hasattr(event, "emit"):
            (draft, distributions), spy.rounds = spy.rounds[-1], []
            paths = []
            for token, parent in zip(
                draft.tree.tokens.tolist(), draft.tree.parents.tolist(), strict=True
            ):
                paths.append((*(paths[parent] if parent >= 0 else text[:-1]), token))
            yield draft, distributions, paths
            text += [token.token for token in event.emit]
    assert len(text) == len(PROMPT) + params.max_tokens


@pairwise(drafter=DRAFTERS, sampling=SAMPLING, kind=CACHES)
def test_every_node_is_judged_by_the_law_of_its_own_prefix(drafter, kind, sampling, monkeypatch):
    spy = LawSpy(monkeypatch)
    engine = engine_for(drafter, "llama", kind)
    params = GenerationParams(max_tokens=9, num_draft_tokens=5, sampling=SAMPLING[sampling], seed=7)
    # A number on the edge of two codes falls to the one or the other as a BLAS rounds it.
    atol = 1e-2 if "int" in kind else 2e-4
    for _, distributions, paths in rounds(engine, params, spy):
        for row, path in zip(np.array(distributions.probs), paths, strict=True):
            exact = TARGETS["llama", kind].distribution(path, SAMPLING[sampling], len(PROMPT))
            np.testing.assert_allclose(row, exact, atol=atol)


@each_value(kind=["full", "rotating"], sampling=SAMPLING, budget=[4, 12])
def test_a_sampled_draft_is_honest_about_its_law(kind, sampling, budget, monkeypatch):
    spy = LawSpy(monkeypatch)
    drafter = DraftModelDrafter(draft_model("llama", kind), VOCAB)
    drafting = Target(drafter.decoder.model, kind)
    params = GenerationParams(
        max_tokens=17, num_draft_tokens=budget, sampling=SAMPLING[sampling], seed=3
    )
    drafted = most = 0
    for draft, _, paths in rounds(make_engine(MODELS["llama"], drafter, kind), params, spy):
        stated = () if draft.sampled_from is None else np.array(draft.sampled_from)
        for row, path in zip(stated, paths, strict=False):
            exact = drafting.distribution(path, SAMPLING[sampling], len(PROMPT))
            np.testing.assert_allclose(row, exact, atol=2e-4)
            drafted += 1
        most = max(most, draft.tree.n_nodes - 1)
    assert drafted > 8
    assert most == budget


@pytest.mark.parametrize("width", [20, 30])
def test_a_draft_model_of_another_width_is_honest_about_its_law(width, monkeypatch):
    spy = LawSpy(monkeypatch)
    small = tiny_model(vocab_size=width, seed=5)
    drafting, sampling, drafted = Target(small), SAMPLING["all filters"], 0
    engine = make_engine(MODELS["llama"], DraftModelDrafter(Decoder(small), VOCAB))
    params = GenerationParams(max_tokens=16, num_draft_tokens=4, sampling=sampling, seed=1)
    for draft, _, paths in rounds(engine, params, spy):
        for row, path in zip(range(draft.tree.n_nodes - 1), paths, strict=False):
            logits = np.full(max(width, VOCAB), -np.inf)
            logits[:width] = drafting.logits(path)
            exact = exact_distribution(logits[:VOCAB], sampling, path, path[len(PROMPT) :])
            np.testing.assert_allclose(np.array(draft.sampled_from[row]), exact, atol=2e-4)
            drafted += 1
    assert drafted > 3


@each_value(family=FAMILIES, lookahead=range(1, 9))
def test_any_lookahead_leaves_the_greedy_tokens(family, lookahead):
    drafter = DraftModelDrafter(draft_model(family, "full"), VOCAB, lookahead)
    engine = make_engine(MODELS[family], drafter)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=8)
    expected = TARGETS[family, "full"].greedy(PROMPT, LENGTH)
    assert emitted(engine.generate(PROMPT, params)) == expected
