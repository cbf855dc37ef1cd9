"""The target's distribution at a position of a reply: the tokens that could be written there."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxspec.device.turns import device_turn
from mlxspec.drafts.tree import DraftTree
from mlxspec.engine.engine import Engine
from mlxspec.params import GenerationParams, checks
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import Alternative
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust
from mlxspec.verify.processors import process

DEFAULT_NUM_ALTERNATIVES = 8


def alternatives(
    engine: Engine,
    prompt: Sequence[int],
    before: Sequence[int],
    params: GenerationParams,
    *,
    k: int = DEFAULT_NUM_ALTERNATIVES,
    written: int | None = None,
) -> list[Alternative]:
    """Return the k most probable tokens after a text, under the model and under the settings.

    The text is a prompt and the tokens of the reply `before` the position; afterwards the engine's
    cache holds it. The token `written` is appended if it is not among the k.
    """
    k = min(checks.whole("k", k, "1 or more", least=1), engine.target.vocab_size)
    with device_turn():
        text, target = [*prompt, *before], engine.target
        target.rollback_to(common_length(target.history, text))
        target.observe(text[len(target) :])
        found = _distribution(engine, prompt, before, params)
        best, model_probs = found.top_tokens(k)
        tokens: list[int] = np.array(best[0]).tolist()
        shown: list[float] = np.array(model_probs[0]).tolist()
        if written is not None and written not in tokens:
            tokens.append(written)
            shown.append(np.array(mx.softmax(found.logits[0]))[written].item())
        probs: list[float | None] = [None] * len(tokens)
        if params.is_greedy:
            best_token = found.best().item()
            probs = [float(token == best_token) for token in tokens]
        elif params.sampler is None:
            probs = np.array(found.probs[0])[tokens].tolist()
    texts = [engine.tokenizer.decode([token], keep_special=True) for token in tokens]
    return list(map(Alternative, tokens, texts, shown, probs))


def _distribution(
    engine: Engine, prompt: Sequence[int], before: Sequence[int], params: GenerationParams
) -> NodeDistributions:
    logits = engine.target.next_logits()[None]
    text = [*prompt, *before]
    counts = TokenCounts.of(list(prompt), engine.target.vocab_size).add(list(before))
    root = DraftTree.from_lists([text[-1]], [-1])
    processors = params.logits_processors
    processed = process(processors, logits, root, text) if processors else logits
    return NodeDistributions(params.sampling, logits, adjust(params.sampling, processed, counts))
