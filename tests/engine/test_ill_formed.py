"""Drafts that are none, and a target that computes no numbers: the reply ends with a clear error,
or goes on as if nothing had been drafted, and what is in the cache is still that of the text."""

from dataclasses import replace
from math import inf, nan

import mlx.core as mx
import pytest

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import NumericsError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftVerified
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise
from mlxspec.verify.rules import verify
from tests.support.adversaries import Adversary, AlwaysRight
from tests.support.pairwise import each_value
from tests.support.shadow import Shadow, assert_holds
from tests.support.tiny import emitted, make_engine, tiny_model

MODEL = tiny_model()
VOCAB = 24
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
KINDS = ("full", "rotating")
SHADOWS = {kind: Shadow(MODEL, kind) for kind in KINDS}
REPLIES = {kind: shadow.greedy(PROMPT, 8) for kind, shadow in SHADOWS.items()}
PARAMS = GenerationParams(max_tokens=8, num_draft_tokens=4)
SAMPLED = replace(PARAMS, sampling=SamplingParams(temperature=1.0))
EITHER = [pytest.param(PARAMS, id="greedy"), pytest.param(SAMPLED, id="sampled")]


class Proposes(Adversary):
    """Proposes one draft again and again, from the second round on."""

    def __init__(self, below=(1,), parents=(-1, 0), *, root=None, tree=None, **claims):
        """`tree` replaces fields of the tree; `claims` are further fields of the draft."""
        self.below, self.parents, self.root = list(below), list(parents), root
        self.tree, self.claims = tree or {}, claims

    def start(self, *setting):
        super().start(*setting)
        self.rounds = 0

    def fresh(self):
        return Proposes(self.below, self.parents, root=self.root, tree=self.tree, **self.claims)

    def propose(self, root, budget):
        self.rounds += 1
        if self.rounds == 1 or budget < PARAMS.num_draft_tokens:
            return Draft.empty(root)
        first = root if self.root is None else self.root
        tree = DraftTree(mx.array([first, *self.below], mx.int32), mx.array(self.parents))
        given = {"sources": ("bad",) * len(self.below), **self.claims}
        return Draft(replace(tree, **self.tree), **given)


def assert_breaks(drafter, message, kind="full", params=PARAMS):
    """The reply ends with an error after one round; then the cache holds its text."""
    engine = make_engine(MODEL, drafter, kind)
    told = []
    with pytest.raises(ValueError, match=message):
        told.extend(t for event in engine.generate(PROMPT, params) for t in emitted([event]))
    assert len(told) == 1
    assert engine.target.history == tuple(PROMPT)
    assert engine.target.cache.num_staged == 0
    return engine, told


def assert_breaks_and_replies_as_new(drafter, message, kind="full", params=PARAMS):
    """It breaks as above; the rows are those of the text and the next turns are right."""
    engine, told = assert_breaks(drafter, message, kind, params)
    assert_holds(engine.target, PROMPT, SHADOWS[kind])
    for prompt in (PROMPT, [*PROMPT, *told, 9, 2]):
        said = emitted(engine.generate(prompt, PARAMS, drafter=NoDrafter()))
        assert said == SHADOWS[kind].greedy(prompt, 8)


NO_TREES = {
    "another root": ({"root": 23}, "token 23; it has to be the root"),
    "a root with a parent": ({"parents": [0, 0]}, "it has to be the root"),
    "a child before its parent": ({"below": [1, 2], "parents": [-1, 2, 0]}, "node 1 has parent 2"),
    "its own parent": ({"below": [1, 2], "parents": [-1, 0, 2]}, "node 2 has parent 2"),
    "a second root": ({"below": [1, 2], "parents": [-1, 0, -1]}, "node 2 has parent -1"),
    "a parent far away": ({"parents": [-1, 2**31 - 1]}, "node 1 has parent"),
    "a token outside": ({"below": [24]}, "token 24; allowed are 0 to 23"),
    "a token far outside": ({"below": [2**31 - 1]}, "allowed are 0 to 23"),
    "a negative token": ({"below": [1, -1], "parents": [-1, 0, 0]}, "token -1; allowed"),
}


@each_value(name=NO_TREES, params=EITHER, kind=KINDS)
def test_what_is_no_tree_ends_the_reply_and_leaves_no_trace(name, params, kind):
    settings, message = NO_TREES[name]
    assert_breaks_and_replies_as_new(Proposes(**settings), message, kind, params)


@pytest.mark.parametrize("name", NO_TREES)
def test_a_batch_reads_no_tree_that_is_none(name):
    settings, message = NO_TREES[name]
    engine = make_engine(MODEL, Proposes(**settings))
    for reply in engine.generate_batch([PROMPT, PROMPT[:4]], PARAMS):
        assert len(reply.tokens) == 1  # of the plain round before
        with pytest.raises(ValueError, match=message):
            reply.raise_error()


TWO = {"below": [1, 2], "parents": [-1, 0, 0]}
PATH = {"below": [1, 2], "parents": [-1, 0, 1]}
LAWS = mx.full((2, VOCAB), 1 / VOCAB)
LAW = LAWS[:1]
FALSE_CLAIMS = {
    "too many nodes": ({"below": range(5), "parents": [-1] + [0] * 5}, "5 nodes; .* budget of 4"),
    "a source missing": (TWO | {"sources": ("bad",)}, "a tuple of 2"),
    "one word for sources": (TWO | {"sources": "bad"}, "a tuple of 2"),
    "sources that are no names": ({"sources": (7,)}, "is the name of a drafter"),
    "too many probabilities": ({"node_probs": mx.ones(2)}, "node_probs of shape"),
    "whole probabilities": ({"node_probs": mx.array([1])}, "node_probs of type mlx.core.int32"),
    "a law missing": (PATH | {"sampled_from": LAW}, r"has to be \(2, 24\)"),
    "laws too wide": ({"sampled_from": mx.ones((1, 25))}, r"has to be \(1, 24\)"),
    "a law in half precision": ({"sampled_from": LAW.astype(mx.float16)}, "of type .*float16"),
    "a law that is no array": ({"sampled_from": [[1 / VOCAB] * VOCAB]}, "a list"),
    "a tree drawn as a chain": (TWO | {"sampled_from": LAWS}, "was drawn with"),
    "a shape with more nodes": (
        TWO | {"sampled_from": LAW, "branching": TreeShape((3,))},
        "a branching of 3",
    ),
    "another shape": (PATH | {"sampled_from": LAW, "branching": TreeShape((2,))}, "was drawn with"),
    "a shape that is none": (TWO | {"sampled_from": LAW, "branching": (2,)}, "be a TreeShape"),
    "two draws of one token": (
        TWO | {"below": [1, 1], "sampled_from": LAW, "branching": TreeShape((2,))},
        "drawn without replacement",
    ),
    "a law and path probabilities": (
        {"sampled_from": LAW, "path_probs": [0.5]},
        "both sampled_from and path_probs",
    ),
    "a path probability missing": (PATH | {"path_probs": [0.5]}, "one number each"),
    "a path probability too many": ({"path_probs": [0.5, 0.5]}, "one number each"),
    "an array for path probabilities": ({"path_probs": mx.array([0.5])}, "one number each"),
    "words for path probabilities": ({"path_probs": ["likely"]}, "path probability 'likely'"),
    "no number for a path": (PATH | {"path_probs": [0.5, nan]}, "path probability nan"),
    "a negative path probability": ({"path_probs": [-0.1]}, "path probability -0.1"),
    "a path likelier than its beginning": (
        PATH | {"path_probs": [0.4, 0.5]},
        "path probability 0.5; after 0.4",
    ),
    "a path probability above 1": ({"path_probs": [1.1]}, "path probability 1.1"),
}
SHAPES = {
    "tokens of another type": ({"tokens": mx.array([3, 1], mx.uint32)}, "tokens of type"),
    "tokens that are a list": ({"tokens": [3, 1]}, "tokens that is a list"),
    "tokens in rows": ({"tokens": mx.array([[3], [1]])}, r"tokens of shape \(2, 1\)"),
    "no root": ({"tokens": mx.array([], mx.int32)}, r"tokens of shape \(0,\)"),
    "parents of another type": ({"parents": mx.array([-1.0, 0.0])}, "parents of type"),
    "a parent missing": ({"parents": mx.array([-1])}, r"parents of shape \(1,\)"),
    "a parent too many": ({"parents": mx.array([-1, 0, 0])}, r"parents of shape \(3,\)"),
    "a depth of none": ({"max_depth": 0}, "max_depth 0"),
    "a depth that is no whole number": ({"max_depth": 1.0}, "max_depth 1.0"),
    "a depth that is no number": ({"max_depth": True}, "max_depth True"),
}
FALSE_CLAIMS |= {name: ({"tree": fields}, message) for name, (fields, message) in SHAPES.items()}


@each_value(name=FALSE_CLAIMS, params=EITHER)
def test_what_a_draft_cannot_say_of_itself_ends_the_reply_before_its_forward(name, params):
    settings, message = FALSE_CLAIMS[name]
    assert_breaks(Proposes(**settings), message, params=params)


@pytest.mark.parametrize("deep", [1, 3])
@pytest.mark.parametrize("params", EITHER)
def test_a_tree_deeper_than_it_says_ends_the_reply_before_its_commit(params, deep):
    drafter = Proposes([1, 2, 3, 4], [-1, 0, 1, 2, 3], tree={"max_depth": deep})
    message = f"node {deep + 1} is {deep + 1} deep; the max_depth of its tree is {deep}"
    assert_breaks_and_replies_as_new(drafter, message, params=params)


def test_noise_is_never_read_beyond_the_levels_that_a_tree_says_it_has():
    """Its depths are the device's to compute; a row that is not there would be any memory."""
    given = []

    class Spy(NodeDistributions):
        def draw(self, noise):
            given.append(noise)
            return super().draw(noise)

    tree = replace(DraftTree.chain(mx.array([3, 1, 2, 4], mx.int32)), max_depth=1)
    noise = Noise.of_seed(3).at(9)
    verify(Draft(tree, ("bad",) * 3), Spy(SAMPLED.sampling, mx.zeros((4, VOCAB))), noise)
    root, below = noise.gumbel(2, VOCAB).tolist()
    assert given[0].tolist() == [root, below, below, below]


def test_a_node_alone_is_plain_decoding_whatever_root_it_names():
    class Lone(Adversary):
        def propose(self, root, budget):
            return Draft.empty((root + 1) % VOCAB)

    engine = make_engine(MODEL, Lone())
    assert emitted(engine.generate(PROMPT, PARAMS)) == REPLIES["full"]


def test_a_drafter_is_not_asked_where_no_node_fits():
    """The last token of a reply is the target's own, so the round before it has no room."""
    asked = []

    class Asked(AlwaysRight):
        def propose(self, root, budget):
            asked.append(budget)
            return super().propose(root, budget)

    engine = make_engine(MODEL, Asked(PROMPT + REPLIES["full"]))
    assert emitted(engine.generate(PROMPT, replace(PARAMS, max_tokens=6))) == REPLIES["full"][:6]
    assert asked == [4]


def test_a_drafter_cannot_write_into_the_law():
    class Writer(Adversary):
        def start(self, prompt, sampling, key):
            super().start(prompt, sampling, key)
            sampling.logit_bias[5] = 100.0

        def propose(self, root, budget):
            return Draft.empty(root)

    params = replace(PARAMS, sampling=SamplingParams(logit_bias={7: 0.0}))
    assert emitted(make_engine(MODEL, Writer()).generate(PROMPT, params)) == REPLIES["full"]
    assert params.sampling.logit_bias == {7: 0.0}


@pytest.mark.parametrize("probs", [[nan] * 2, [inf, -inf]])
def test_a_drafters_own_estimates_change_nothing(probs):
    """They are for display; the reply does not depend on them."""
    engine = make_engine(MODEL, Proposes(**TWO, node_probs=mx.array(probs)))
    assert emitted(engine.generate(PROMPT, PARAMS)) == REPLIES["full"]


# ---- a target without numbers ----------------------------------------------------------------


@each_value(
    call=[1, 2],
    value=[nan, inf],
    sampling=[
        SamplingParams(),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=0.7, top_p=0.9),
    ],
)
def test_logits_that_are_no_numbers_end_the_reply_and_the_cache(call, value, sampling, monkeypatch):
    engine = make_engine(MODEL, AlwaysRight(PROMPT + REPLIES["full"]))
    compute, calls = engine.target.model.logits, []

    def broken(hidden):
        calls.append(hidden)
        return compute(hidden) + (value if len(calls) == call else 0)

    with monkeypatch.context() as patch:
        patch.setattr(engine.target.model, "logits", broken)
        with pytest.raises(NumericsError, match="computed no numbers"):
            list(engine.generate(PROMPT, replace(PARAMS, sampling=sampling)))
    assert engine.target.history == ()
    assert engine.target.cache.nbytes == 0
    events = list(engine.generate(PROMPT, PARAMS))
    assert emitted(events) == REPLIES["full"]
    assert any(isinstance(event, DraftVerified) for event in events)


def test_logits_that_are_no_numbers_beside_the_path_change_nothing(monkeypatch):
    engine = make_engine(MODEL, Proposes(**TWO))
    assert not {1, 2} & set(REPLIES["full"][:4])
    model, beside = engine.target.model, mx.array([0.0, nan, nan])[:, None]
    compute = model.logits
    monkeypatch.setattr(
        model, "logits", lambda hidden: compute(hidden) + (beside if len(hidden) == 3 else 0.0)
    )
    params = replace(PARAMS, max_tokens=4)
    assert emitted(engine.generate(PROMPT, params)) == REPLIES["full"][:4]
