"""Replies of a model, alone or shared by ranks, in every way that has to agree."""

from dataclasses import replace

from mlxspec import api
from mlxspec.drafting import engines
from mlxspec.params import GenerationParams, Options, SamplingParams
from tests.support.ranks import PROMPT

PARAMS = {
    "greedy": GenerationParams(max_tokens=16, ignore_eos=True),
    "sampled": GenerationParams(  # exact_seed: else a text depends on the sizes of sampled drafts
        max_tokens=16,
        ignore_eos=True,
        seed=7,
        exact_seed=True,
        sampling=SamplingParams(temperature=0.9),
    ),
}
TEXT = [455, 28, 2654, 28, 4461, 28, 2382, 28] * 2
"""Words that repeat themselves, in tokens of the default model, so that drafts are accepted."""


def tokens_of(events):
    return [token.token for event in events for token in getattr(event, "emit", ())]


def replies(folder, small, *, drafters, hosts=None, **settings):
    """Tokens by "drafter params", and what is known of the ranks."""
    options, found, sizes = Options(drafter="none", hosts=hosts, **settings), {}, []
    prepared = api.prepare(folder, options, say=lambda line: None)
    words = prepared.engine.weights
    for drafter in drafters:
        given = replace(options, drafter=drafter, draft_model=small if drafter == "model" else None)
        prepared = engines.change_drafter(prepared, given, say=lambda line: None)
        for name, params in PARAMS.items():
            found[f"{drafter} {name}"] = tokens_of(prepared.engine.generate(PROMPT, params))
    engine = prepared.engine
    batch = engine.generate_batch([PROMPT, PROMPT[3:]], PARAMS["greedy"])
    found["batch"] = [list(reply.tokens) for reply in batch]
    if hosts is not None:
        from mlxspec.distributed import ranks

        sizes = ranks.start(hosts).sizes
    engine.close()
    return {"replies": found, "sizes": sizes, "words": words}


def default_replies(engine):
    """Tokens of short replies of the default model, by params."""
    few = {name: replace(params, max_tokens=8) for name, params in PARAMS.items()}
    return {name: tokens_of(engine.generate(TEXT, params)) for name, params in few.items()}
