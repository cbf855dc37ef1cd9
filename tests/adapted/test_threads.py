"""Another thread may use the model as mlx-lm does, in the middle of a forward of ours."""

from threading import Thread

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from tests.support.tiny_adapted import adapted

TOKENS = mx.array([[3, 1, 4, 1, 5]])


def test_a_call_of_another_thread_sees_no_forward_of_ours():
    model = adapted("lfm2")
    want = model.source(TOKENS, cache=make_prompt_cache(model.source))
    mx.eval(want)
    got = []

    def plain():
        got.append(model.source(TOKENS, cache=make_prompt_cache(model.source)))
        mx.eval(got)

    decoder = Decoder(model, Cache.for_model(model.config))
    decoder.observe([2, 7, 1])
    tree = DraftTree.from_lists([3, 1, 4, 1, 5], [-1, 0, 0, 1, 2])
    stage = decoder.cache.stage

    def stage_while_another_calls(*args):
        thread = Thread(target=plain)
        thread.start()
        thread.join()
        return stage(*args)

    decoder.cache.stage = stage_while_another_calls
    decoder.forward_tree(tree)
    assert mx.array_equal(got[0], want)
