"""The judge of drafters: it passes good ones, and says what is wrong with others."""

import mlx.core as mx
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import as_drafter
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import FREE, DraftLimits, GenerationParams
from mlxspec.testing import (
    OracleDrafter,
    ScriptedDrafter,
    UniformDrafter,
    check_drafter,
    tiny_engine,
    tiny_model,
)
from mlxspec.trace.events import DraftVerified
from tests.support.adversaries import DrawnAndCut, DrawnTree, SaysFlatter
from tests.support.tiny import emitted
from tests.support.truth import Target

PROMPT = [1, 2, 3, 1]
REPLY = Target(tiny_model()).greedy(PROMPT, 12)
PARAMS = GenerationParams(max_tokens=12, num_draft_tokens=4)


# ---- the target and the mocks ----------------------------------------------------------------


def test_a_tiny_engine_says_what_its_model_says_and_another_seed_makes_another_one():
    assert emitted(tiny_engine().generate(PROMPT, PARAMS)) == REPLY
    first, second, other = (
        emitted(tiny_engine(seed=seed).generate(PROMPT, PARAMS)) for seed in (5, 5, 6)
    )
    assert first == second != other


def test_letters_stand_for_tokens_and_a_vocabulary_too_small_for_a_tree_is_refused():
    engine = tiny_engine(vocab_size=8)
    assert engine.tokenizer.decode(engine.tokenizer.encode("bad")) == "bad"
    assert emitted(engine.generate("bcdb", PARAMS)) == REPLY
    with pytest.raises(ValueError, match="4 tokens or more; got a vocab_size of 3"):
        tiny_engine(vocab_size=3)


def test_a_knowing_drafter_is_always_right():
    engine = tiny_engine(OracleDrafter([*PROMPT, *REPLY]))
    for _ in range(2):
        events = list(engine.generate(PROMPT, PARAMS))
        assert emitted(events) == REPLY
        verified = [event for event in events if isinstance(event, DraftVerified)]
        assert [len(event.path) for event in verified] == [4, 4, 1]


def test_a_script_is_followed_round_by_round_and_what_came_of_it_is_kept():
    drafter = ScriptedDrafter([REPLY[:2], [], [9 - REPLY[4]] * 9])
    assert REPLY[4] > 1  # so that the third chain holds another token
    assert emitted(tiny_engine(drafter).generate(PROMPT, PARAMS)) == REPLY
    assert [len(round.tokens) - 1 for round in drafter.rounds[:4]] == [2, 0, 4, 0]
    assert [round.accepted for round in drafter.rounds[:3]] == [REPLY[:2], [], []]


def test_a_class_without_the_base_keeps_what_it_has_and_gets_defaults_for_the_rest():
    inner = SuffixDrafter()
    inner.limits = DraftLimits(branching=2)
    proxy = Proxy(inner)
    assert as_drafter(proxy) is proxy
    assert isinstance(proxy, Proxy)
    assert (proxy.name, proxy.limits) == ("suffix", inner.limits)
    foreign = as_drafter(Foreign(8))
    assert (foreign.name, foreign.limits, foreign.readers) == ("foreign", FREE, ())
    with pytest.raises(ValueError, match="'foreign'"):
        foreign.fresh()
    with pytest.raises(ValueError, match="drafter"):
        as_drafter("pool")


# ---- the judge -------------------------------------------------------------------------------


def draft_model(target):
    return DraftModelDrafter(Decoder(tiny_model(vocab_size=target.vocab_size, seed=7)), 5, 2)


class Foreign:
    """Does what the documented interface asks for, without the base class."""

    __slots__ = ("_uniform",)
    name = "foreign"
    num_top_tokens = 0

    def __init__(self, vocab_size):
        self._uniform = UniformDrafter(vocab_size)

    def start(self, prompt, sampling, key):
        self._uniform.start(prompt, sampling, key)

    def propose(self, root, budget):
        return self._uniform.propose(root, budget)

    def update(self, round):
        pass


class Proxy:
    def __init__(self, inner):
        self._inner = inner

    def propose(self, root, budget):
        return self._inner.propose(root, budget)

    def __getattr__(self, name):
        return getattr(self._inner, name)


GOOD = {
    "suffix": lambda target: SuffixDrafter(),
    "draft model": draft_model,
    "foreign class": lambda target: Foreign(target.vocab_size),
    "drawn tree": lambda target: DrawnTree(target.vocab_size),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_drafter_passes(name):
    report = check_drafter(GOOD[name], vocab_size=5, num_draws=60)
    assert 0 < report.num_accepted < report.num_drafted
    assert report.p_value > 1e-4


class Biased(UniformDrafter):
    """Says that it draws from the uniform law, and prefers low tokens."""

    def propose(self, root, budget):
        draft = super().propose(root, budget)
        tokens = mx.where(mx.arange(draft.tree.n_nodes) > 0, draft.tree.tokens // 2, root)
        return with_tokens(draft, tokens)


class Choosy(UniformDrafter):
    """Draws from a law that it states, and leaves out what it found improbable."""

    def propose(self, root, budget):
        self._key, key = mx.random.split(self._key)
        probs = mx.array([0.1, 0.1, 0.1, 0.05, 0.05, 0.45, 0.05, 0.1])
        token = mx.random.categorical(mx.log(probs), key=key).item()
        if not budget or probs[token] < 0.3:
            return Draft.empty(root)
        tree = DraftTree.from_lists([root, token], [-1, 0])
        return Draft(tree, (self.name,), sampled_from=probs[None])


class Unseeded(UniformDrafter):
    """Draws with chance that is nobody's."""

    def start(self, prompt, sampling, key):
        Unseeded.number = getattr(Unseeded, "number", 0) + 1
        super().start(prompt, sampling, mx.random.key(Unseeded.number))


class Breaking(SuffixDrafter):
    def propose(self, root, budget):
        raise RuntimeError("out of guesses")


class Writing(SuffixDrafter):
    """Writes into the cache of the target."""

    def __init__(self, target):
        super().__init__()
        self._target = target

    def update(self, round):
        super().update(round)
        for plane in self._target.cache.arrays:
            plane[:] = plane * 0.5


def with_tokens(draft, tokens):
    tree = DraftTree.chain(tokens.astype(mx.int32))
    return Draft(tree, draft.sources, sampled_from=draft.sampled_from)


BAD = {
    "another distribution than stated": (lambda target: Biased(8), "another distribution than"),
    "drops a node because of its token": (lambda target: Choosy(8), "another distribution than"),
    "randomness of its own": (lambda target: Unseeded(8), "gives two texts"),
    "drawn and cut": (lambda target: DrawnAndCut(8), "both sampled_from and path_probs"),
    "deeper than it says": (lambda target: SaysFlatter(), "2 deep"),
    "broken": (lambda target: Breaking(), "the drafter failed: out of guesses"),
    "writes into the target": (Writing, "at temperature 0"),
    "silent": (lambda target: NoDrafter(), "proposed nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_drafter_is_refused_with_what_is_wrong(name):
    make_drafter, message = BAD[name]
    with pytest.raises(AssertionError, match=message):
        check_drafter(make_drafter, num_draws=240)


def test_a_mistake_in_its_code_comes_out_as_it_is():
    class Mistaken(SuffixDrafter):
        def propose(self, root, budget):
            return [][0]

    with pytest.raises(IndexError):
        check_drafter(lambda target: Mistaken())
