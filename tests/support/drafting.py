"""Helpers for the tests of host drafters: rounds without a target, and checks of a tree."""

from itertools import pairwise
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

import mlxspec.reply.verification as verification
from mlxspec.device import backend
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.rows import StoredRows, extend
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams

SAMPLING, KEY = SamplingParams(temperature=0.0), mx.random.key(0)


def shape_of(draft):
    """Tokens, parents and rounded probabilities of a draft, ready to compare."""
    probs = [] if draft.node_probs is None else draft.node_probs.tolist()
    return draft.tree.tokens.tolist(), draft.tree.parents.tolist(), [round(p, 5) for p in probs]


def assert_valid(draft, root, budget):
    tokens, parents, probs = shape_of(draft)
    edges = list(zip(parents[1:], tokens[1:], strict=True))
    assert tokens[0] == root
    assert parents[0] == -1
    assert len(edges) <= budget
    assert all(0 <= parent < node for node, (parent, _) in enumerate(edges, 1))
    assert len(set(edges)) == len(edges)
    assert len(draft.sources) == len(edges)
    assert all(0 < prob <= 1 for prob in probs)


class DraftSpy:
    """Stands in for `verify` in the engine, on the device, and keeps the drafts."""

    def __init__(self, monkeypatch):
        self.drafts, self._verify = [], verification.verify
        monkeypatch.setattr(backend, "verifies_on_host", lambda: False)
        monkeypatch.setattr(verification, "verify", self)

    def __call__(self, draft, *others):
        self.drafts.append(draft)
        return self._verify(draft, *others)


def path_probs(draft):
    """Probability of each node's path, in the order of the nodes, root left out."""
    _, parents, probs = shape_of(draft)
    products = [1.0]
    for parent, prob in zip(parents[1:], probs, strict=True):
        products.append(products[parent] * prob)
    return products[1:]


def round_of(draft, continuation, next_rows):
    """The verdict of a target that says `continuation`.

    Args:
        draft: The draft.
        continuation: Tokens of the target after the root, enough for path and bonus token.
        next_rows: Function from the tokens of a path, root first, to the target's most probable
            next tokens and their probabilities.
    """
    tokens, parents, _ = shape_of(draft)
    path = [0]
    for token in continuation:
        below = [n for n in range(len(tokens)) if parents[n] == path[-1] and tokens[n] == token]
        if not below:
            break
        path += below
    rows = [next_rows(path_to(node, tokens, parents)) for node in range(len(tokens))]
    top_tokens, top_probs = zip(*rows, strict=True)
    return Round(tokens, parents, path, continuation[len(path) - 1], top_tokens, top_probs)


def path_to(node, tokens, parents):
    above = path_to(parents[node], tokens, parents) if node else []
    return [*above, tokens[node]]


def fixed_row(path):
    """A target with the same three most probable tokens at every position."""
    return [1, 2, 0], [0.5, 0.25, 0.125]


def reply(drafter, prompt, text, *, budget=8, next_rows=fixed_row):
    """Run the rounds of the reply `text` to `prompt`; return the drafts."""
    drafter.start(prompt, SAMPLING, KEY)
    drafts, said, root = [], 0, prompt[-1]
    padded = [*text, *[0] * (budget + 2)]
    while said < len(text):
        drafts.append(drafter.propose(root, budget))
        assert_valid(drafts[-1], root, budget)
        round = round_of(drafts[-1], padded[said:], next_rows)
        drafter.update(round)
        said += len(round.path)
        root = round.bonus_token
    return drafts


TURNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=1, max_size=6),
        st.lists(st.integers(0, 3), max_size=20),
    ),
    max_size=4,
)
"""Prompts and replies of few distinct tokens."""


def assert_valid_and_repeatable(make_drafter, turns, budget, sources):
    """Every tree is valid and best first, and a second drafter proposes the same."""
    first, second = make_drafter(), make_drafter()
    for prompt, text in turns:
        drafts = reply(first, prompt, text, budget=budget)
        again = reply(second, prompt, text, budget=budget)
        assert list(map(shape_of, drafts)) == list(map(shape_of, again))
        assert [draft.sources for draft in drafts] == [draft.sources for draft in again]
        for draft in drafts:
            assert_valid(draft, shape_of(draft)[0][0], budget)
            assert set(draft.sources) <= sources
            assert all(a >= b - 1e-4 for a, b in pairwise(path_probs(draft)))


def learned(*texts, **settings):
    """A drafter after texts of (token, row of the target after it)."""
    drafter = TableDrafter(**settings)
    for text in texts:
        tokens, rows = zip(*text, strict=True)
        drafter.start(tokens[:1], SAMPLING, KEY)
        top_tokens, top_probs = [list(row) for row in rows], [[*row.values()] for row in rows]
        nodes = range(len(tokens))
        chain = [node - 1 for node in nodes]
        drafter.update(Round(tokens, chain, nodes, 0, top_tokens, top_probs))
    return drafter


def stored_rows(*tables):
    """Stored rows per order, from {context: (occurrences, {token: probability})}."""
    return [_stored(table) for table in tables]


def _stored(table):
    packed = {extend(0, *context): row for context, row in table.items()}
    contexts = sorted(packed)
    entries = [entry for context in contexts for entry in packed[context][1].items()]
    sizes = [len(packed[context][1]) for context in contexts]
    return StoredRows(
        contexts=np.array(contexts, np.int64),
        counts=np.array([packed[context][0] for context in contexts], np.uint8),
        starts=np.cumsum([0, *sizes]),
        tokens=np.array([token for token, _ in entries], np.uint32),
        roots=np.array([round(255 * prob**0.5) for _, prob in entries], np.uint8),
    )


def pool_with_seed_table(vocab_size):
    """A pool whose table begins with random rows of a seed text."""
    draw = np.random.default_rng(4)

    def row():
        tokens = draw.choice(vocab_size, 3, replace=False).tolist()
        return int(draw.integers(1, 99)), dict(zip(tokens, (0.6, 0.3, 0.1), strict=True))

    pairs = draw.integers(0, vocab_size, (40, 2)).tolist()
    rows = stored_rows(
        {(token,): row() for token in range(vocab_size)}, {(a, b): row() for a, b in pairs}, {}
    )
    table = TableDrafter(seed_table=SimpleNamespace(rows=rows))
    return PoolDrafter([SuffixDrafter(), table])


def after(drafter, *tokens):
    """The prediction of a table after some tokens."""
    return drafter.next_probs(extend(0, *tokens))


# After "7 8 9" the target said 1; after "6 8 9" 2; after "5 9" 3 and 1.
NONE = {}
TEXTS = (
    [(7, NONE), (8, NONE), (9, {1: 0.8})],
    [(6, NONE), (8, NONE), (9, {2: 0.6})],
    [(4, NONE), (5, NONE), (9, {3: 0.5, 1: 0.1})],
)


class Place:
    """A cursor over a dict from paths below the root to probabilities."""

    def __init__(self, name, rows, path=()):
        self.name, self.rows, self.path = name, rows, path

    def next_probs(self):
        return self.rows.get(self.path, {})

    def source_of(self, token):
        return self.name

    def child(self, token):
        return Place(self.name, self.rows, (*self.path, token))
