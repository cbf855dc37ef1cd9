"""The zoo: trees, chains and texts of every model type equal those of mlx-lm itself."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams
from tests.support.adversaries import RandomTrees
from tests.support.tiny import ToyTokenizer, emitted
from tests.support.zoo import (
    NOT_RUN,
    PAGE,
    PROMPT,
    SETTINGS,
    build,
    row_of,
)

ROWS = {
    row.split(" | ")[0].removeprefix("| "): row
    for row in PAGE.read_text(encoding="utf-8").splitlines()
    if row.startswith("| ") and not row.startswith("| type ")
}
WITH_TREES = [name for name, row in ROWS.items() if row.split(" | ")[1] == "tree"]
WITH_DRAFTS = [name for name, row in ROWS.items() if row.split(" | ")[1] in ("tree", "chain")]
WITH_CHAINS = [name for name, row in ROWS.items() if row.split(" | ")[1] == "chain"]
WITH_WINDOWS = [name for name in WITH_TREES if "window" in ROWS[name]]
WELL_KNOWN = ("llama", "qwen3", "gemma3_text", "gpt2", "ministral3", "deepseek_v3", "gpt_oss")
LENGTH = 20


def test_the_page_has_a_row_for_every_type_of_the_zoo():
    assert sorted(ROWS) == sorted({*SETTINGS, *NOT_RUN})


def test_the_zoo_has_at_least_75_types_with_trees_and_95_with_drafts():
    assert len(WITH_TREES) >= 75
    assert len(WITH_DRAFTS) >= 95


RUN = [name for name in SETTINGS if name not in NOT_RUN]
# One type for each row that says something else; of the others the drafted text of every fifth.
BY_ROW = {ROWS[name].partition(" | ")[2]: name for name in [*RUN, *WELL_KNOWN]}
DIFFERENT = set(BY_ROW.values())
DRAFTED = [*WELL_KNOWN, *sorted({*DIFFERENT, *WITH_DRAFTS[::5]} - {*WELL_KNOWN})]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DIFFERENT else pytest.mark.slow) for name in RUN],
)
def test_a_type_supports_what_its_row_of_the_page_says(name):
    assert row_of(name) == ROWS[name]


def true_text(source) -> list[int]:
    with mx.stream(mx.default_device()):
        steps = generate_step(mx.array(PROMPT), source, max_tokens=LENGTH)
        return [int(token) for token, _ in steps]


@pytest.mark.parametrize("name", [name for name in DRAFTED if name in WITH_DRAFTS])
def test_greedy_text_equals_that_of_mlx_lm_with_any_drafter(name):
    source = build(name)
    expected = true_text(source)
    model = AdaptedModel(source)
    model.draft_support = "chain" if name in WITH_CHAINS else "tree"
    target = Decoder(model)
    vocab_size = target.vocab_size
    engine = Engine(target, PoolDrafter([SuffixDrafter()]), ToyTokenizer(vocab_size))
    for drafter in (engine.drafter, RandomTrees(vocab_size)):
        target.reset()
        events = engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH), drafter=drafter)
        assert emitted(events) == expected, drafter.name
