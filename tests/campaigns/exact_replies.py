"""Counts drafted replies that differ from plain ones by a bit, with exact decoding and without.

    python -m tests.campaigns.exact_replies [--types llama,mamba2] [--max-tokens 40]

Tiny models of many types, in each dtype and with quantised weights, over each kind of cache, greedy
and sampled. Tokens and the logits that they were drawn from are compared.
"""

import argparse
from itertools import product

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.engine.engine import Engine
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import make_cache
from mlxspec.params import GenerationParams, Options, SamplingParams
from tests.support.adversaries import RandomTrees
from tests.support.tiny import ToyTokenizer
from tests.support.tiny_adapted import SETTINGS, VOCAB, source
from tests.support.told_bits import bits_of

WEIGHTS = ("float32", "float16", "bfloat16", "8 bits", "4 bits")
CACHES = {"full": Options(), "rotating": Options(max_kv_size=40)}
TEMPERATURES = (0.0, 0.7, 1.0)
DRAFTERS = {"suffix": SuffixDrafter, "random trees": lambda: RandomTrees(VOCAB)}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3] * 3


def model_of(kind, weights):
    """A tiny model of mlx-lm as a target."""
    module = source(kind)
    if "bits" in weights:
        fits = {"class_predicate": lambda _, part: _can_be_packed(part)}
        nn.quantize(module, group_size=32, bits=int(weights.split()[0]), **fits)
    else:
        module.set_dtype(getattr(mx, weights))
    mx.eval(module.parameters())
    return AdaptedModel(module)


def _can_be_packed(part):
    return hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0


def counts(model, options, max_tokens):
    """How many replies were compared, and how many differ with exact decoding and without."""
    compared, differ = 0, {True: 0, False: 0}
    for temperature, is_exact in product(TEMPERATURES, differ):
        sampling = SamplingParams(temperature=temperature)
        params = GenerationParams(
            max_tokens, sampling, seed=7, exact_seed=True, exact=is_exact, ignore_eos=True
        )
        wanted = bits_of(_engine(model, options, NoDrafter), PROMPT, params)
        for make in DRAFTERS.values():
            found = bits_of(_engine(model, options, make), PROMPT, params)
            differ[is_exact] += found != wanted
            compared += is_exact
    return compared, differ[True], differ[False]


def _engine(model, options, make_drafter):
    decoder = Decoder(model, make_cache(model.config, options))
    return Engine(decoder, make_drafter(), ToyTokenizer(VOCAB))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", default=",".join(SETTINGS))
    parser.add_argument("--max-tokens", type=int, default=40)
    args = parser.parse_args(argv)
    total = [0, 0, 0]
    for kind, weights in product(args.types.split(","), WEIGHTS):
        model = model_of(kind, weights)
        for name, options in CACHES.items():
            try:
                found = counts(model, options, args.max_tokens)
            except MlxspecError as error:
                print(f"{kind}, {weights}, {name}: {error}", flush=True)
                continue
            total = [sum(pair) for pair in zip(total, found, strict=True)]
            words = "{} replies, {} differ, {} without the mode".format(*found)
            print(f"{kind}, {weights}, {name}: {words}", flush=True)
    print("in all {} replies, {} differ, {} without the mode".format(*total))
    return int(total[1] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
