"""A round costs the same however long the chat: nothing of its length is copied or held twice.

Time tells this badly on a busy machine. What Python and MLX allocate during a round tells it
exactly: a copy of the history, of the text or of a ring would be as long as they are.
"""

import tracemalloc
from statistics import median

import mlx.core as mx
import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.trace.events import DraftVerified, PlainDecoded
from tests.support.tiny import make_engine, tiny_model
from tests.support.toy_chat import ToyChat

MODEL = tiny_model()
SHORT, LONG = 500, 16_000
SAMPLING = SamplingParams(repetition_penalty=1.1, presence_penalty=0.1)
PARAMS = GenerationParams(max_tokens=12, num_draft_tokens=4, sampling=SAMPLING, ignore_eos=True)
DRAFTERS = {"none": NoDrafter, "pool": lambda: PoolDrafter([SuffixDrafter(), TableDrafter()])}


def chat(drafter):
    engine = make_engine(MODEL, DRAFTERS[drafter](), "rotating", tokenizer=ToyChat())
    return Conversation(engine)


def costs_of_rounds(drafter, length):
    """Bytes that Python and MLX allocate at most in a round of a chat, both as medians."""
    conversation = chat(drafter)
    python, mlx, held = [], [], (0, 0)
    events = conversation.reply("abcdefghij" * (length // 10), PARAMS)
    for event in events:
        if isinstance(event, DraftVerified | PlainDecoded):
            if tracemalloc.is_tracing():
                python.append(tracemalloc.get_traced_memory()[1] - held[0])
                mlx.append(mx.get_peak_memory() - held[1])
            else:
                tracemalloc.start()
            tracemalloc.reset_peak()
            mx.reset_peak_memory()
            held = tracemalloc.get_traced_memory()[0], mx.get_active_memory()
    tracemalloc.stop()
    assert len(python) >= 3
    return median(python), median(mlx)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_round_of_a_rotating_chat_allocates_the_same_however_long_the_chat(drafter):
    short, long = (costs_of_rounds(drafter, length) for length in (SHORT, LONG))
    assert long[0] - short[0] < 4 * LONG  # a list of the tokens takes twice as much
    assert long[1] - short[1] < 4 * LONG  # as many as an array of them
