"""Finds the forwards in which this device computes a row of a model to the same bits.

Nothing about kernels is assumed. Drafted rows are compared with the rows of plain decoding, as
logits and in the cache, bit by bit: for each number of rows, after short and long texts on both
sides of the lengths at which kernels change, and for several continuations. The result is stored,
because it takes a minute, and depends only on the model, the libraries and the device.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import product
from operator import itemgetter
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxspec.budget import CostCurve
from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.exact import ExactForm
from mlxspec.device import backend, chips
from mlxspec.device.speed import machine_key
from mlxspec.device.turns import device_turn
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import Say
from mlxspec.loading.records import Records
from mlxspec.models.weights import digest_of_weights, kinds_of_weights

PLAIN = ExactForm({1: 1}, pads_keys=False)
"""Forwards of one row: no draft is verified, so every reply is that of plain decoding."""

_WIDEST = 33
_LENGTHS = (1, 255, 1023, 1024, 4096)
_NUM_RUNS = 3
_REPEATED = 255  # rows of a text of which a longer one is made, because reading takes time
_ACCEPTANCE = 0.7  # of a draft token, to compare forms before anything is known about drafts
_USUAL_COSTS = {1: 1.0, _WIDEST: 4.2}  # a tenth more with each row, as on most CPUs
_RECORDS = Records("exact.json")
_known: dict[str, ExactForm] = {}


def exact_form(decoder: Decoder, say: Say = lambda line: None) -> ExactForm:
    """Return the forwards of exact decoding for a decoder's model and kind of cache.

    They are read from the records of this machine, or found now, which takes the time of some
    hundred forwards. The decoder keeps them as its `known_form`.
    """
    if decoder.known_form is None:
        key = _key(decoder)
        if key not in _known:
            _known[key] = _stored(key) or _found(decoder, key, say)
        decoder.known_form = _known[key]
    return decoder.known_form


def _key(decoder: Decoder) -> str:
    """Return what the bits of a row depend on besides the text."""
    # Where ranks share a model, the shapes of their weights are not those of its config.
    config, module = decoder.model.config, _module(decoder)
    flat: Any = tree_flatten(module.parameters())
    kinds = [array.shape for _, array in flat], kinds_of_weights(module)
    about = repr((config, kinds, decoder.cache.windows, decoder.drafts))
    own = import_module("mlxspec").__version__
    return (
        f"{config.model_type} {sha256(about.encode()).hexdigest()[:16]}, "
        f"{decoder.cache.describe()} cache, {machine_key()}, mlxspec {own}"
    )


def rows_key(decoder: Decoder) -> str:
    """Return what the rows of a text depend on besides its tokens and the kind of forwards."""
    return f"{_key(decoder)}, weights {digest_of_weights(_module(decoder))}"


def _stored(key: str) -> ExactForm | None:
    record = _RECORDS.load(key)
    try:
        rows = {int(width): int(num) for width, num in (record or {})["rows"].items()}
        form = ExactForm(dict(sorted(rows.items())), bool((record or {})["pads_keys"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    are_rows = all(1 <= num <= width <= _WIDEST for width, num in form.rows.items())
    return form if form.rows and are_rows else None


def _found(decoder: Decoder, key: str, say: Say) -> ExactForm:
    say("finding the forwards in which a drafted token has the bits of a written one, once")
    start = time.monotonic()
    with device_turn():
        form = find_form(decoder.apart())
    _RECORDS.store(key, {"rows": form.rows, "pads_keys": form.pads_keys})
    say(f"found in {time.monotonic() - start:.0f} s: {form.words}")
    return form


def find_form(decoder: Decoder) -> ExactForm:
    """Return the fastest exact form of a decoder, which has no text before and afterwards."""
    exam = _Exam(decoder)
    try:
        # BLAS chooses a kernel by the size of a product, so there every size has to be one.
        paddings = (True,) if backend.is_cpu() else (False, True)
        candidates = [found for pads in paddings for found in exam.candidates(pads_keys=pads)]
        for _, form in sorted(candidates, key=itemgetter(0), reverse=True):
            alone = ({width: form.rows[width]} for width in sorted(form.rows, reverse=True))
            for rows in (form.rows, *alone):
                confirmed = exam.confirmed(ExactForm(rows, form.pads_keys))
                if confirmed.most_nodes:
                    return confirmed
        return PLAIN
    finally:
        decoder.be_exact(None)


class _Exam:
    """Compares the rows of a decoder after the beginnings of one text."""

    def __init__(self, decoder: Decoder) -> None:
        size, longest = decoder.vocab_size, decoder.context_length or 1 << 30
        self._decoder, cache = decoder, decoder.cache
        self._costs = _published_costs(decoder)
        self._can_fill = cache.can_be_cut and decoder.can_adopt
        self._text = [(7 * i * i + 31 * i + 11) % size for i in range(_LENGTHS[-1])]
        self._runs = [
            [(size // 3 + 5 * i + 97 * run) % size for i in range(_WIDEST)]
            for run in range(_NUM_RUNS)
        ]
        most = min(longest, cache.max_size or longest, _LENGTHS[-1 if self._can_fill else -2])
        self._lengths = [length for length in _LENGTHS if length <= most - 2 * _WIDEST] or [1]

    def candidates(self, *, pads_keys: bool) -> Iterator[tuple[float, ExactForm]]:
        """Yield forms that agree after a short text, with the tokens that each promises.

        Those are tokens in the time of a forward of one row. A form has all widths whose first row
        is the same; on a CPU it has one width.
        """
        decoder, run = self._decoder, self._runs[0]
        if decoder.draft_support == "none":
            return
        self._read(ExactForm({width: width for width in range(1, _WIDEST + 1)}, pads_keys), 1)
        widths = range(1, 2 + decoder.most_nodes)
        drafted = {width: self._forward(run[:width]) for width in widths}
        classes = dict[bytes, list[int]]()
        for width, rows in drafted.items():
            classes.setdefault(rows[0] + bytes([width] * backend.is_cpu()), []).append(width)

        def promised(rows: Mapping[int, int]) -> float:
            return max(_gain(num) / self._costs.raw(width) for width, num in rows.items())

        wholes = [{width: width for width in members} for members in classes.values()]
        best = 0.0
        for whole in sorted(wholes, key=promised, reverse=True):
            if promised(whole) <= best:
                return
            exact = self._agreeing({width: drafted[width] for width in whole}, run)
            if exact:  # else not even a repeated forward has the same bits
                best = max(best, promised(exact))
                yield promised(exact), ExactForm(exact, pads_keys)

    def confirmed(self, form: ExactForm) -> ExactForm:
        """Return the part of a form that agrees after all texts and for all runs."""
        for length, run in product(self._lengths, self._runs):
            self._read(form, length)
            found = self._agreeing({w: self._forward(run[:w]) for w in form.rows}, run)
            rows = {width: min(num, found.get(width, 0)) for width, num in form.rows.items()}
            form = ExactForm(_worth_having(rows), form.pads_keys)
            if not form.rows:
                return PLAIN
        return form

    def _read(self, form: ExactForm, length: int) -> None:
        """Go on after the beginning of the text; that of a long one is repeated rows."""
        decoder = self._decoder
        decoder.be_exact(form)
        if len(decoder) == length:
            return
        first = min(length, _REPEATED) if self._can_fill else length
        decoder.reset()
        decoder.observe(self._text[:first])
        if first < length:
            repeats = -(-length // first)
            planes = [mx.concatenate([plane] * repeats, axis=2) for plane in self._rows(0, first)]
            cache = decoder.cache.filled(length, [plane[:, :, :length] for plane in planes])
            decoder.adopt(self._text[:length], cache)

    def _rows(self, start: int, end: int) -> list[mx.array]:
        return self._decoder.cache.rows(start, end)

    def _agreeing(
        self, drafted: Mapping[int, Sequence[bytes]], run: Sequence[int]
    ) -> dict[int, int]:
        """Return the widths that have exact rows, ascending, and how many.

        The narrowest width is that of plain decoding. The decoder goes on one token at a time, and
        back; rows in the cache are compared, too.
        """
        decoder, length = self._decoder, len(self._decoder)
        narrowest, most = min(drafted), 1 + decoder.most_nodes
        written, states = list[bytes](), list[bytes]()
        rows = dict.fromkeys(drafted, 0)
        for at in range(min(max(drafted), most)):
            written.append(self._forward([run[at]], narrowest)[0])
            alike = [width for width, own in drafted.items() if own[: at + 1] == written]
            rows |= dict.fromkeys(alike, at + 1)
            if not alike:
                break
            decoder.commit([0])
            states.append(self._bits(length + at))
        decoder.rollback_to(length)
        for width, num in rows.items():
            self._forward(run[:width])
            decoder.commit(range(num))
            same = [self._bits(length + at) == states[at] for at in range(num)]
            rows[width] = [*same, False].index(False)
            decoder.rollback_to(length)
        return _worth_having(rows)

    def _forward(self, tokens: Sequence[int], width: int = 0) -> list[bytes]:
        """Return the bits of the logits of each row of a chain, padded to `width` rows."""
        decoder = self._decoder
        chain = DraftTree.chain(mx.array(list(tokens), mx.int32))
        tree = chain.lengthened(max(width, len(tokens)))
        logits = decoder.logits(decoder.forward_tree(tree)).astype(mx.float32)
        mx.eval(logits)
        return [sha256(row.tobytes()).digest() for row in np.array(logits)]

    def _bits(self, position: int) -> bytes:
        """Return the bits of the row of a position in all layers, where the cache can tell."""
        if not self._can_fill:
            return b""
        planes = [plane.view(mx.uint8) for plane in self._rows(position, position + 1)]
        mx.eval(planes)
        return sha256(b"".join(np.array(plane).tobytes() for plane in planes)).digest()


def _published_costs(decoder: Decoder) -> CostCurve:
    """Return the costs by which forms are compared.

    They are not measured: a busy moment must not change the form, and with it every reply.
    """
    chip = chips.here()
    steps = map(chip.steps, kinds_of_weights(_module(decoder))) if chip else ()
    return CostCurve(next((own.costs for own in steps if own), _USUAL_COSTS))


def _module(decoder: Decoder) -> Any:
    return getattr(decoder.model, "source", decoder.model)


def _worth_having(rows: Mapping[int, int]) -> dict[int, int]:
    """Return the widths that have more exact rows than all narrower ones."""
    kept = dict[int, int]()
    for width, num in sorted(rows.items()):
        if num > max(kept.values(), default=0):
            kept[width] = num
    return kept


def _gain(num_rows: int) -> float:
    """Return the expected tokens of a forward with this number of exact rows."""
    return sum(_ACCEPTANCE**at for at in range(num_rows))
