"""The word that compares the tokens of two replies: in events, in batches, with kept tokens."""

from hashlib import sha256

import numpy as np

from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams
from mlxspec.trace.difference import token_hash
from mlxspec.trace.events import GenerationFinished
from tests.support.tiny import emitted, make_engine, tiny_model

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
PARAMS = GenerationParams(max_tokens=12, ignore_eos=True)


def expected(tokens):
    return sha256(np.array(tokens, "<i4").tobytes()).hexdigest()


def test_it_is_the_hash_of_the_ids_as_bytes():
    # printf '\x01\x00\x00\x00\x02\x01\x00\x00\x5b\x50\x02\x00' | sha256sum
    assert token_hash([1, 0x102, 0x2505B]) == (
        "fe77225857409faf92473189f6a163efb1dd4270a502d00b7a6b27fb2bd85425"
    )
    assert token_hash(()) == sha256().hexdigest()


def test_a_reply_tells_the_hash_of_all_its_tokens():
    engine = make_engine(tiny_model(), SuffixDrafter())
    events = list(engine.generate(PROMPT, PARAMS))
    tokens = emitted(events)
    assert len(tokens) == 12
    again = list(engine.generate(PROMPT, PARAMS, kept=tokens[:5]))
    for end in (events[-1], again[-1]):
        assert isinstance(end, GenerationFinished)
        assert end.stats["token_hash"] == expected(tokens)
    for reply in engine.generate_batch([PROMPT, PROMPT[1:]], PARAMS):
        assert reply.token_hash == expected(reply.tokens)
        assert (reply.token_hash == expected(tokens)) == (reply.index == 0)
