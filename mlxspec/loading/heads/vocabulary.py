"""The reduced vocabulary of a head: the token ids that it can draft, checked.

There are two forms. `token_map` lists the ids. `d2t` lists offsets: token i of the head is token
i + d2t[i] of the target.
"""

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.names import Renamed
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields


def token_ids(
    array: mx.array, what: str, vocab_size: int, *, are_offsets: bool = False
) -> mx.array:
    """Return (n,) int32 ids of the target.

    `array` holds (n,) integers: the ids, or with `are_offsets` their offsets from 0, 1, ... Every
    message starts with `what`, the name of the array.

    Raises:
        UnsupportedModelError: It is no list of integers, or an id is outside the vocabulary.
    """
    if array.ndim != 1 or not mx.issubdtype(array.dtype, mx.integer):
        raise UnsupportedModelError(
            f"{what} is {array.dtype} of shape {array.shape}; a list of whole numbers is needed"
        )
    ids = np.array(array).astype(np.int64) + (np.arange(array.size) if are_offsets else 0)
    beyond = ids[(ids < 0) | (ids >= vocab_size)]
    if len(beyond):
        raise UnsupportedModelError(
            f"{what} leads to token {beyond[0]}; the target has tokens 0 to {vocab_size - 1}: the "
            "head was made for another target"
        )
    return mx.array(ids.astype(np.int32))


def reduce_vocabulary(
    renamed: Renamed,
    ids: str,
    fields: Fields,
    target: TargetConfig,
    is_output: Callable[[str], bool],
) -> None:
    """Check the ids, and cut full output layers to the rows of these ids.

    If the config states that the vocabulary is not reduced, the ids are dropped, as in vLLM.

    Raises:
        UnsupportedModelError: The ids are not ids of the target.
    """
    if fields.integer("truncated_vocab_size", 1) >= target.vocab_size:
        renamed.drop(ids)
        return
    token_map = token_ids(renamed.tensors[ids], repr(renamed.origins[ids]), target.vocab_size)
    whole = {
        name: array
        for name, array in renamed.tensors.items()
        if is_output(name) and array.shape[:1] == (target.vocab_size,)
    }
    rows = {id(array): array[token_map] for array in whole.values()}  # shared outputs stay shared
    renamed.tensors.update({name: rows[id(array)] for name, array in whole.items()})
    renamed.tensors[ids] = token_map
