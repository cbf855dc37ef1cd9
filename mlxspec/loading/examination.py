"""Examines an adapted model before it is trusted with drafts: only what was tested is trusted.

The next release of mlx-lm can break any list of types that work. So a model is examined on its real
weights, against mlx-lm's own cache, read token by token. The examination compares a text, a draft
tree, the tree after a commit (its nodes in another order) and after a rollback, a root alone, and a
batch. If trees fail, it tries chains, then single tokens; a model that fails these is refused.

Then it tries the caches that users can request besides the plain, full one. mlx-lm does not have,
for every model, a cache of sinks and a ring, or one that packs every row. So the reference there is
the model itself, which reads a short text token by token over the same kind of cache. A model that
counts its rows, or compares slots with positions, misreads there.
"""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.adapted.config import Admission
from mlxspec.adapted.model import AdaptedModel, relative_error
from mlxspec.decoder.decoder import Decoder
from mlxspec.device.packed import GROUP_SIZES, Quantization
from mlxspec.drafts.tree import DraftTree
from mlxspec.errors import Progress
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import batch_layout
from mlxspec.kv.windows import Eviction
from mlxspec.models import CacheKind, DraftSupport

_LONGEST_WINDOW = 1200  # tokens; a longer text would take more time than a user should wait
_SHORT = 24  # tokens of the text if no window has to be passed
_RING_SIZE, _RING_KEEP = 12, 4
_RING_TEXT = 16  # tokens: the ring has wrapped
_NODES = 7
_TREE = (-1, 0, 0, 1, 1, 2, 3)
_CHAIN = (-1, 0, 1, 2, 3, 4, 5)
# Immediate, because a user's cache evicts only in longer texts.
_EVICTION = Eviction(slack=_NODES, block=1)
_NOISE_FACTOR = 8.0  # how much worse a draft may round than a text that is read in one forward

# Returns one error for all processes that share a model; otherwise one could continue alone.
Agree = Callable[[float], float]


def examine(
    model: AdaptedModel,
    on_progress: Progress = lambda done, total: None,
    agree: Agree = lambda error: error,
) -> Admission:
    """Return which drafts a model verifies exactly; the model is not changed."""
    start = time.perf_counter()
    exam = _Exam(model, on_progress, agree)
    reasons: list[str] = []
    shapes: dict[DraftSupport, Sequence[int]] = {"tree": _TREE, "chain": _CHAIN, "none": (-1,)}
    names = {"tree": "draft trees", "chain": "draft chains", "none": "single tokens"}
    for support, parents in shapes.items():
        fault, error = exam.fault_of(parents)
        if not fault:
            batches = support == "tree" and exam.is_batch_exact()
            refused = exam.refused_caches(parents)
            seconds = time.perf_counter() - start
            return Admission(support, "; ".join(reasons), error, seconds, batches, refused)
        reasons.append(f"{names[support]}: {fault}")
    return Admission(None, "; ".join(reasons), 0.0, time.perf_counter() - start)


class _Exam:
    """The texts of one examination, and mlx-lm's logits for them."""

    def __init__(self, model: AdaptedModel, on_progress: Progress, agree: Agree) -> None:
        self._model = model
        self._agree = agree
        self._progress = on_progress
        windows = [w for w in model.config.layer_windows if w is not None and w <= _LONGEST_WINDOW]
        length = max([_SHORT, *(window + 2 * _NODES for window in windows)])
        length = min(length, model.config.max_position_embeddings - 3 * _NODES)
        width = model.config.vocab_size
        self._prompt = [(7 * i * i + 31 * i + 11) % width for i in range(length)]
        self._tokens = [(width // 3 + i) % width for i in range(_NODES)]  # siblings differ
        self._truth: dict[tuple[int, ...], mx.array] = {}
        self._read: Any = None  # mlx-lm's caches after the prompt, once it is read
        self._planned = self._texts(_TREE)
        self._tolerance = self._noise()

    def fault_of(self, parents: Sequence[int]) -> tuple[str, float]:
        """Return what is wrong with drafts of this shape, or "", and the largest error."""
        tree, path = self._draft(range(len(parents)), parents), _committed(parents)
        self._planned |= self._texts(parents)
        decoder = self._decoder()
        worst, start = 0.0, len(self._prompt)
        try:
            decoder.observe(self._prompt)
            root, deep = self._draft([0], parents), self._draft(_depth_first(parents), parents)
            for name, act, draft in (
                ("the draft", lambda: None, tree),
                ("the draft after a commit", lambda: _commit(decoder, tree, path), deep),
                ("the draft after a rollback", lambda: decoder.rollback_to(start), tree),
                ("a root alone", lambda: None, root),  # it gets a different mask, or none
            ):
                act()
                error = self._error(decoder, draft)
                worst = max(worst, error)
                if not error <= self._tolerance:  # also catches NaN
                    return f"{name} is {error:.1e} off, {self._tolerance:.1e} is allowed", worst
        except Exception as error:  # third-party code, over caches that it does not know
            return f"{type(error).__name__}: {str(error)[:200]}", worst
        return "", worst

    def is_batch_exact(self) -> bool:
        """Return whether trees after two texts in one forward have the logits of each alone."""
        decoders = [self._decoder() for _ in range(2)]
        trees = [self._draft(order, _TREE) for order in (range(_NODES), _depth_first(_TREE))]
        shapes = [tree.parent_list() for tree in trees]
        try:
            cache = BatchCache(decoders[0].cache, len(decoders))
            for sequence, decoder in enumerate(decoders):
                decoder.observe(self._prompt[3 * sequence :])  # of different lengths
                cache.fill(sequence, decoder.cache)
            cache.states.expect_rows(shapes)
            positions, masks = batch_layout(cache.offsets, shapes, self._model.config.layer_windows)
            tokens = mx.stack([tree.tokens for tree in trees])
            hidden, _ = self._model.hidden_states(tokens, cache, positions, masks)
            found = zip(self._model.logits(hidden), decoders, trees, strict=True)
            errors = [self._off(got, decoder.tree_logits(tree)) for got, decoder, tree in found]
        except Exception:  # as in `fault_of`; then every sequence gets its own forward
            return False
        return max(errors) <= self._tolerance

    def refused_caches(self, parents: Sequence[int]) -> dict[CacheKind, str]:
        """Return the kinds of cache over which drafts of this shape are not exact, and why."""
        config, found = self._model.config, dict[CacheKind, str]()
        if not config.num_row_stores:
            return found
        ring = {"max_size": _RING_SIZE, "keep": _RING_KEEP}
        if fault := self._fault_over(parents, ring):
            found["rotating"] = fault
        if config.head_dim and config.head_dim % min(GROUP_SIZES) == 0:
            packing = Quantization.for_head_dim(8, config.head_dim)
            if fault := self._fault_over(parents, {"quantization": packing}):
                found["quantised"] = fault
        return found

    def _fault_over(self, parents: Sequence[int], kind: dict[str, Any]) -> str:
        """Return what is wrong with a draft, or with a text read in one forward, or ""."""
        model, tolerance = self._model, self._tolerance
        text = [(5 * i * i + 17 * i + 3) % model.config.vocab_size for i in range(_RING_TEXT)]
        tree, path = self._draft(range(len(parents)), parents), _path(parents, len(parents) - 1)
        try:
            by_tokens, at_once, plain = (
                Decoder(model, Cache.for_model(model.config, **settings))
                for settings in (kind, kind, {})
            )
            for token in text:
                by_tokens.observe([token])
            at_once.observe(text)
            if by_tokens.cache.quantization is not None:
                # A number between two codes can cause an error, smaller than that of packing all.
                plain.observe(text)
                tolerance = max(tolerance, self._off(by_tokens.next_logits(), plain.next_logits()))
            whole = self._off(at_once.next_logits(), by_tokens.next_logits())
            # A model with windows may see more in a text read at once, over mlx-lm's caches too.
            if not any(model.config.row_windows) and not whole <= tolerance:
                return f"a text in one piece is {whole:.1e} off, {tolerance:.1e} is allowed"
            got = by_tokens.tree_logits(tree)
            mx.eval(got)  # before the next forward, as in `_after`
            for node in path:
                by_tokens.observe([self._tokens[node]])
                error = self._off(got[node], by_tokens.next_logits())
                if not error <= tolerance:  # also catches NaN
                    return f"a draft is {error:.1e} off, {tolerance:.1e} is allowed"
        except Exception as error:  # as in `fault_of`
            return f"{type(error).__name__}: {str(error)[:200]}"
        return ""

    def _decoder(self) -> Decoder:
        return Decoder(self._model, Cache.for_model(self._model.config, eviction=_EVICTION))

    def _draft(self, order: Sequence[int], parents: Sequence[int]) -> DraftTree:
        """Return a draft of this shape, or a part of one, with its nodes in another order."""
        at = {node: index for index, node in enumerate(order)}
        above = [at.get(parents[node], -1) for node in order]
        return DraftTree.from_lists(self._drafted(order), above)

    def _error(self, decoder: Decoder, tree: DraftTree) -> float:
        before = decoder.history[len(self._prompt) :]
        tokens, parents = tree.lists()
        got = decoder.tree_logits(tree)
        worst = 0.0
        for node in range(tree.n_nodes):
            drafted = [tokens[at] for at in _path(parents, node)]
            worst = max(worst, self._off(got[node], self._after((*before, *drafted))))
            if worst != worst:
                return worst
        return worst

    def _off(self, got: mx.array, want: mx.array) -> float:
        return self._agree(relative_error(got, want))

    def _texts(self, parents: Sequence[int]) -> set[tuple[int, ...]]:
        """Return the texts, without the prompt, with which drafts of this shape are compared."""
        befores = ((), self._drafted(_committed(parents)))
        paths = [self._drafted(_path(parents, node)) for node in range(len(parents))]
        return {(*before, *path) for before in befores for path in paths}

    def _drafted(self, nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._tokens[node] for node in nodes)

    def _after(self, tokens: tuple[int, ...]) -> mx.array:
        """Return mlx-lm's (V,) logits after the prompt and some tokens, read one by one."""
        if tokens not in self._truth:
            cache = self._caches_after_prompt()
            for end, token in enumerate(tokens, 1):
                logits = self._model.source(mx.array([[token]], mx.int32), cache=cache)[0, -1]
                mx.eval(logits)  # before the next one: ranks of a pipeline would mix them up
                self._truth[tokens[:end]] = logits
            self._progress(len(self._planned & self._truth.keys()), len(self._planned))
        return self._truth[tokens]

    def _caches_after_prompt(self) -> Any:
        """Return mlx-lm's caches after the prompt, as copies; the prompt is read once."""
        if self._read is None:
            self._read = make_prompt_cache(self._model.source)
            logits = self._model.source(mx.array([self._prompt], mx.int32), cache=self._read)
            mx.eval(logits)
        return copy.deepcopy(self._read)

    def _noise(self) -> float:
        """Return the error that rounding alone can cause: that of a text read in one forward."""
        tokens = self._drafted(_path(_TREE, _NODES - 1))
        text = mx.array([[*self._prompt, *tokens]], mx.int32)
        at_once = self._model.source(text, cache=make_prompt_cache(self._model.source))[0, -1]
        noise = self._off(at_once, self._after(tokens))
        least = {mx.float32: 2e-5, mx.float16: 4e-3}.get(at_once.dtype, 3e-2)
        return max(least, _NOISE_FACTOR * noise)


def _commit(decoder: Decoder, tree: DraftTree, path: Sequence[int]) -> None:
    mx.eval(decoder.forward_tree(tree))  # as in `_after`
    decoder.commit(path)


def _committed(parents: Sequence[int]) -> list[int]:
    """Return the nodes of a draft that are committed before it is compared again."""
    return _path(parents, (len(parents) - 1) // 2)


def _depth_first(parents: Sequence[int]) -> list[int]:
    """Return the nodes of a draft depth-first instead of level by level."""
    return sorted(range(len(parents)), key=lambda node: _path(parents, node))


def _path(parents: Sequence[int], node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]
