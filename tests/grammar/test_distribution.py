"""Replies under a grammar follow the model's distribution without the forbidden tokens.

The truth knows nothing of the library that makes the masks: the language is a list of words, what
may follow is found in it, and the model is computed in NumPy.
"""

from dataclasses import replace
from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest

import mlxspec.reply.verification as verification
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.measure.chi_square import fit
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.reply.pending import HostRound
from tests.adapted.test_joint import FixedTrees, SampledTrees
from tests.engine.test_interrupts import LooksAhead
from tests.support.adversaries import (
    DrawnTree,
    Duplicates,
    FirstRoundOnly,
    NoLaw,
    RandomTrees,
    UniformChain,
)
from tests.support.all_outcomes import joint_of_engine
from tests.support.language import EndedTokenizer, Language
from tests.support.pairwise import each_value
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Target, exact_distribution

VOCAB, END = 5, 4
PROMPT = [1, 2, 0, 1, 2]
SMALL = {"head_dim": 32, "num_attention_heads": 1}
MODEL = tiny_model(vocab_size=VOCAB, seed=2, **SMALL)
CACHES = ("full", "rotating", "int8", "int4")
TARGETS = {kind: Target(MODEL, kind) for kind in CACHES}
WORDS = Language("(ab|ca|bbb)(cd|ad|[bd]d)(b?|aa)[a-d]?", 4, 7, end=END)
GRAMMAR = Grammar.regex(WORDS.pattern)
SAMPLING = {
    "temperature": SamplingParams(temperature=1.2),
    "filters": SamplingParams(temperature=1.0, top_k=3, top_p=0.9, min_p=0.05),
    "penalties": SamplingParams(
        temperature=1.1, presence_penalty=0.5, repetition_penalty=1.2, logit_bias={1: 0.8, 2: -2.0}
    ),
    "mlx-lm's order": SamplingParams(
        temperature=1.3, top_p=0.9, xtc_probability=0.4, filter_order="mlx-lm"
    ),
}


def draft_model(target):
    return DraftModelDrafter(Decoder(tiny_model(vocab_size=VOCAB, seed=3, **SMALL)), VOCAB, 3)


DRAFTERS = {
    "none": lambda target: NoDrafter(),
    "suffix": lambda target: SuffixDrafter(),
    "pool": lambda target: PoolDrafter([SuffixDrafter(), TableDrafter()]),
    "pool of a head": lambda target: PoolDrafter(
        [SuffixDrafter(), eagle3_drafter(target, is_reduced=False)]
    ),
    "prediction": lambda target: PredictionDrafter((0, 1, 2, 3, 1, 0), NoDrafter()),
    "prediction beside a model": lambda target: PredictionDrafter((3, 1), draft_model(target)),
    "draft model": draft_model,
    "eagle3": lambda target: eagle3_drafter(target, is_reduced=False),
    "medusa": medusa_drafter,
    "exit": lambda target: exit_drafter(target, threshold=0.2),
    "random trees": lambda target: RandomTrees(VOCAB),
    "duplicates": lambda target: Duplicates(VOCAB),
    "drawn tree": lambda target: DrawnTree(VOCAB),
    "uniform chain": lambda target: UniformChain(VOCAB),
    "no law": lambda target: NoLaw(VOCAB),
}


def engine_with(drafter, kind="full"):
    tokenizer = EndedTokenizer(VOCAB)
    return make_engine(MODEL, None, kind, make_drafter=DRAFTERS[drafter], tokenizer=tokenizer)


def greedy_word(kind):
    reply = ()
    while WORDS.following(reply):
        text = (*PROMPT, *reply)
        logits = TARGETS[kind].logits(text)
        reply += (int(np.argmax(WORDS.distribution(logits, SamplingParams(), text, reply))),)
    return list(reply)


@each_value(drafter=DRAFTERS, kind=CACHES, num_nodes=[0, 1, 6])
def test_a_greedy_reply_is_the_best_allowed_token_after_each_prefix(drafter, kind, num_nodes):
    params = GenerationParams(max_tokens=20, grammar=GRAMMAR, num_draft_tokens=num_nodes)
    events = list(engine_with(drafter, kind).generate(PROMPT, params))
    assert emitted(events) == greedy_word(kind)
    assert events[-1].reason == "stop"


@pytest.mark.parametrize("drafter", ["none", "random trees"])
def test_a_plain_round_waits_for_the_token_that_decides_what_may_follow(drafter):
    """Without a grammar this budget lets a round begin before the token of the one before."""
    tokenizer, budget = EndedTokenizer(VOCAB), LooksAhead()
    engine = make_engine(
        MODEL, None, make_drafter=DRAFTERS[drafter], tokenizer=tokenizer, budget=budget
    )
    params = GenerationParams(max_tokens=20, grammar=GRAMMAR, num_draft_tokens=6)
    assert emitted(engine.generate(PROMPT, params)) == greedy_word("full")


class Laws:
    """Stands in for what verifies, on the device or the host, and keeps the last distributions."""

    def __init__(self, monkeypatch):
        self._verify = verification.verify
        monkeypatch.setattr(verification, "verify", self)
        monkeypatch.setattr(verification, "HostRound", self.on_host)

    def __call__(self, draft, distributions, noise, rule):
        self.last = draft, distributions
        return self._verify(draft, distributions, noise, rule)

    def on_host(self, draft, distributions, *others):
        self.last = draft, distributions
        return HostRound(draft, distributions, *others)


@each_value(drafter=DRAFTERS, sampling=SAMPLING)
def test_every_node_is_judged_by_the_distribution_of_its_own_prefix(drafter, sampling, monkeypatch):
    laws, engine = Laws(monkeypatch), engine_with(drafter)
    params = GenerationParams(
        max_tokens=20, grammar=GRAMMAR, num_draft_tokens=6, sampling=SAMPLING[sampling], seed=7
    )
    said = ()
    for event in engine.generate(PROMPT, params):
        if event.t not in ("verify", "plain"):
            continue
        draft, distributions = laws.last
        tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
        replies = [said]
        for token, parent in zip(tokens[1:], parents[1:], strict=True):
            before = replies[parent]
            is_on = before is not None and token in WORDS.following(before)
            replies.append((*before, token) if is_on else None)
        for reply, row in zip(replies, np.array(distributions.probs), strict=True):
            if reply is None or not WORDS.following(reply):
                continue
            text = (*PROMPT, *reply)
            exact = WORDS.distribution(
                TARGETS["full"].logits(text), SAMPLING[sampling], text, reply
            )
            np.testing.assert_allclose(row, exact, atol=2e-4)
        said += tuple(token.token for token in event.emit)
    assert not WORDS.following(said)


@pytest.mark.parametrize(
    ("drafter", "rule"),
    [
        ("pool", "block"),
        ("drawn tree", "block"),
        ("uniform chain", "block"),
        ("draft model", "token"),
    ],
)
def test_whole_replies_follow_the_joint_distribution(drafter, rule):
    engine, sampling, drawn = engine_with(drafter), SamplingParams(temperature=1.2), []
    for seed in range(150):
        params = GenerationParams(
            max_tokens=20,
            grammar=GRAMMAR,
            num_draft_tokens=5,
            sampling=sampling,
            seed=seed,
            chain_rule=rule,
        )
        drawn.append(tuple(emitted(engine.generate(PROMPT, params))))
    exact = WORDS.joint(TARGETS["full"], PROMPT, sampling)
    assert sum(exact.values()) == pytest.approx(1)
    assert fit(drawn, exact).p_value > 1e-4


FIRST = Language("(ab|[bc]b|d[ad])(cd|[abc]a|bc)[a-d]?", 4, 5)
LENGTH = 3


class SampledChains(FirstRoundOnly):
    """Every chain of two tokens that can be drawn in the first round."""

    first = (Fraction(1, 2), Fraction(1, 6), Fraction(0), Fraction(1, 3))
    others = (Fraction(1, 4), Fraction(0), Fraction(3, 4), Fraction(0))  # shifted by the token

    def drawn(self, root):
        tokens, rows = [root], []
        for law in (self.first, self.others):
            shift = tokens[-1] if rows else 0
            row = [law[(token - shift) % 4] for token in range(4)]
            rows.append([float(prob) for prob in row])
            tokens.append(self.outcomes.choose(zip(row, range(4), strict=True)))
        tree = DraftTree.chain(mx.array(tokens, mx.int32))
        return Draft(tree, ("sampled",) * 2, sampled_from=mx.array(rows))


WAYS = {  # to draft, and to verify chains
    "fixed trees": (lambda outcomes: FixedTrees(), "block"),
    "sampled trees": (SampledTrees, "block"),
    "block rule": (SampledChains, "block"),
    "token rule": (SampledChains, "token"),
    "plain": (lambda outcomes: NoDrafter(), "block"),
}


@each_value(
    way=WAYS, pattern=[FIRST, Language("ab(c|d)(ba|cc)[ab]?", 4, 6), Language("[ab]cd(a|b)", 4, 4)]
)
def test_the_joint_distribution_of_the_first_tokens_is_exact(way, pattern, monkeypatch):
    make, rule = WAYS[way]
    model = tiny_model(vocab_size=4, seed=2, **SMALL)
    engine, sampling = make_engine(model, NoDrafter()), SamplingParams(temperature=1.0)
    params = GenerationParams(
        max_tokens=20,
        grammar=Grammar.regex(pattern.pattern),
        num_draft_tokens=6,
        sampling=sampling,
        chain_rule=rule,
    )
    joint, _ = joint_of_engine(engine, make, PROMPT, params, LENGTH, monkeypatch)
    exact = {}
    for word, prob in pattern.joint(Target(model), PROMPT, sampling).items():
        exact[word[:LENGTH]] = exact.get(word[:LENGTH], 0) + prob
    assert sum(joint.values()) == pytest.approx(1, abs=1e-5)
    for text in {*joint, *exact}:
        assert joint.get(text, 0) == pytest.approx(exact.get(text, 0), abs=1e-5)


def test_a_batch_gives_each_sequence_its_own_grammar():
    engine = engine_with("pool")
    grammars = [GRAMMAR, None, Grammar.choices(["dada", "dabb"]), GRAMMAR]
    params = [
        GenerationParams(
            max_tokens=12, grammar=grammar, num_draft_tokens=6, sampling=SamplingParams(0.9), seed=3
        )
        for grammar in grammars
    ]
    alone = [emitted(engine.generate(PROMPT, own)) for own in params]
    batch = list(engine.generate_batch([PROMPT] * 4, params, batch_size=3))
    assert [list(reply.tokens) for reply in batch] == alone
    assert alone[2] in ([3, 0, 3, 0], [3, 0, 1, 1])
    assert len(alone[1]) == 12 or alone[1][-1] == END


def test_logits_of_forced_tokens_are_handed_over_too():
    seen = []
    params = GenerationParams(
        max_tokens=20,
        grammar=Grammar.regex("abcd(a|b)cc"),
        on_logits=lambda tokens, logits: seen.append((list(tokens), np.array(logits))),
    )
    tokens = emitted(engine_with("pool").generate(PROMPT, params))
    told = [token for some, _ in seen for token in some]
    assert told == tokens[: len(told)]
    for some, rows in seen:
        assert [int(np.argmax(row)) for row in rows] == some


@pytest.mark.parametrize("seed", [0, 5])
def test_exact_seed_gives_the_text_of_plain_sampling(seed):
    params = GenerationParams(
        max_tokens=20,
        grammar=GRAMMAR,
        sampling=SamplingParams(temperature=1.1),
        seed=seed,
        exact_seed=True,
    )
    replies = {
        tuple(emitted(engine_with(drafter).generate(PROMPT, replace(params, num_draft_tokens=num))))
        for drafter, num in (("none", 0), ("draft model", 5), ("pool", 6), ("exit", 4))
    }
    assert len(replies) == 1


def test_processors_come_before_the_grammar_and_a_bias_after(monkeypatch):
    laws = Laws(monkeypatch)
    params = GenerationParams(
        max_tokens=1,
        grammar=Grammar.regex("(a|b)c"),
        logits_processors=[lambda tokens, logits: mx.zeros_like(logits)],
        sampling=SamplingParams(temperature=1.0, logit_bias={0: 1.0}),
    )
    list(engine_with("none").generate(PROMPT, params))
    exact = np.zeros(VOCAB)
    exact[:2] = exact_distribution(np.zeros(2), params.sampling, (), ())
    np.testing.assert_allclose(np.array(laws.last[1].probs)[0], exact, atol=1e-6)
