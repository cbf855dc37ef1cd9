"""The joint law of a reply's first tokens, through the whole engine, for every drafter that draws.

Drafts that are a function of the past leave the text of plain sampling: see `test_same_seed`. What
a node's law is, what a draft was drawn from, and that the rules turn such laws into the target's is
tested apart. Here all of it acts together, chance included: a draft that is drawn with
the noise of the verdict on it, say, is honest in every part, and its text follows another law. A
tiny target says three tokens of four, again and again with one seed after the other. The law of the
64 texts is computed in NumPy, prefix by prefix; a chi-square test compares. Chains have two tokens,
so that the third is the target's own wherever both were kept: one that knows of their noise shows.
"""

import itertools

import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.prediction import PredictionDrafter
from mlxspec.measure.chi_square import fit
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DrafterFailed
from tests.support.adversaries import DrawnTree, NoLaw, UniformChain
from tests.support.drafting import pool_with_seed_table
from tests.support.tiny import make_engine, tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter
from tests.support.truth import Target

VOCAB, LENGTH, DRAWS = 4, 3, 200
LEAST_P = 1e-4  # of true laws one in 10,000 sets of seeds fails; these seeds are fixed
PROMPT = [1, 2, 0, 1, 2]
SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 1, "head_dim": 16}
MODEL = tiny_model(vocab_size=VOCAB, seed=2, **SMALL)
TRUTH = Target(MODEL)
SAMPLING = SamplingParams(temperature=1.2, top_p=0.97, presence_penalty=0.5, repetition_penalty=1.2)


def draft_model(lookahead):
    decoder = Decoder(tiny_model(vocab_size=VOCAB, seed=3, **SMALL))
    return DraftModelDrafter(decoder, VOCAB, lookahead)


def whole_eagle3(target, **settings):
    return eagle3_drafter(target, is_reduced=False, **settings)


DRAFTERS = {  # name: what makes it, draft nodes, other settings of a reply
    "none": (lambda target: NoDrafter(), 2, {}),
    "draft model, block rule": (lambda target: draft_model(2), 2, {}),
    "draft model, token rule": (lambda target: draft_model(2), 2, {"chain_rule": "token"}),
    "draft model, a tree": (lambda target: draft_model(2), 4, {}),
    "pool with a seed table": (lambda target: pool_with_seed_table(VOCAB), 3, {}),
    "eagle, a chain": (eagle_drafter, 2, {}),
    "eagle, a tree": (lambda target: eagle_drafter(target, lookahead=2), 4, {}),
    "eagle3, a chain": (whole_eagle3, 2, {}),
    "eagle3, a tree": (lambda target: whole_eagle3(target, lookahead=2), 6, {}),
    "exit": (lambda target: exit_drafter(target, threshold=0.4), 2, {}),
    "prediction beside a draft model": (
        lambda target: PredictionDrafter((3, 1, 0, 2, 2, 1), draft_model(2)),
        2,
        {},
    ),
    "uniform chain": (lambda target: UniformChain(VOCAB), 2, {}),
    "drawn tree": (lambda target: DrawnTree(VOCAB), 4, {}),
    "no law": (lambda target: NoLaw(VOCAB), 2, {}),
}


def joint_distribution():
    """The probability of every text."""
    exact = {}
    for text in itertools.product(range(VOCAB), repeat=LENGTH):
        exact[text] = 1.0
        for i, token in enumerate(text):
            exact[text] *= TRUTH.distribution((*PROMPT, *text[:i]), SAMPLING, len(PROMPT))[token]
    return exact


EXACT = joint_distribution()


def draw(engine, params):
    """The first tokens of one reply, and how many drafted ones were kept."""
    tokens, num_kept = [], 0
    for event in engine.generate(PROMPT, params, should_stop=lambda: len(tokens) >= LENGTH):
        assert not isinstance(event, DrafterFailed)
        if event.t in ("verify", "plain"):
            tokens.extend(token.token for token in event.emit)
            num_kept += len(getattr(event, "path", ()))
    return tuple(tokens[:LENGTH]), num_kept


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_first_tokens_follow_the_joint_law_of_the_target(drafter):
    make_drafter, num_nodes, settings = DRAFTERS[drafter]
    engine = make_engine(MODEL, None, make_drafter=make_drafter)
    drawn, kept = [], 0
    for seed in range(DRAWS):
        params = GenerationParams(
            max_tokens=LENGTH + num_nodes,  # a draft is never larger than what is left
            sampling=SAMPLING,
            seed=seed,
            num_draft_tokens=num_nodes,
            **settings,
        )
        text, num_kept = draw(engine, params)
        drawn.append(text)
        kept += num_kept
    assert all(EXACT[text] > 1e-9 for text in drawn)
    assert fit(drawn, EXACT).p_value > LEAST_P
    assert (kept > DRAWS / 10) == (drafter not in ("none", "no law"))
