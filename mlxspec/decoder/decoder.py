"""The decoder: a model, its cache and its token history, always consistent.

`history` is exactly the tokens of the committed cache rows: a forward only *stages* rows, and
`commit` adds rows and tokens together. A method that raises leaves the decoder unchanged. If an
interrupt prevents that, `rollback_to` repairs the decoder.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx

from mlxspec.decoder.exact import ExactForm, exact_support
from mlxspec.decoder.forwards import Forwards
from mlxspec.decoder.hidden import HiddenStateReader, HiddenStates, Readers
from mlxspec.drafts.tree import DraftTree, check_branch
from mlxspec.kv.cache import Cache
from mlxspec.kv.steady import CHUNK
from mlxspec.models import (
    CacheKind,
    DraftSupport,
    TargetModel,
    check_cache,
    drafts_in_words,
)

PREFILL_CHUNK = 512
"""Prompt tokens per forward: enough to use the device fully, few enough to limit the memory."""

NO_LIMIT = 1 << 30


class Decoder:
    """Runs one model over one growing token sequence.

    `context_length` is the largest length of the history: the model's limit, or less if memory is
    short; None with a rotating cache, which has no limit.
    """

    def __init__(self, model: TargetModel, cache: Cache | None = None) -> None:
        """Start with an empty history, over a kind of cache that the model supports."""
        check_cache(model, _kinds(cache))
        self.model = model
        self.form: ExactForm | None = None
        self.known_form: ExactForm | None = None  # of exact decoding here, once it is found
        self.revision = 0  # changes whenever the history changes
        rotates = cache is not None and cache.max_size is not None
        self.context_length = None if rotates else model.config.max_position_embeddings
        self._readers = Readers()
        self._forwards = Forwards(model, cache or Cache.for_model(model.config))
        self._history: list[int] = []
        self._last_hidden: mx.array | None = None  # (1, D), of the last committed token
        self._num_read = 0  # first tokens of the history that are whole chunks of an exact text
        self._is_torn = False  # True: an interrupt left cache, history and readers inconsistent

    @property
    def cache(self) -> Cache:
        """The cache; only this class changes it."""
        return self._forwards.cache

    @property
    def vocab_size(self) -> int:
        """Width of the logits; padding can make it larger than the tokenizer's vocabulary."""
        return self.model.config.vocab_size

    @property
    def draft_support(self) -> DraftSupport:
        """The drafts that can be verified."""
        support = self.model.draft_support
        return support if self.form is None else exact_support(support)

    @property
    def drafts(self) -> str:
        """The drafts that can be verified, and why no others, for display."""
        return drafts_in_words(self.model.draft_support, self.model.draft_limits)

    @property
    def can_adopt(self) -> bool:
        """Whether `adopt` is possible: all rows of a text are in this process."""
        return True

    @property
    def num_hidden_layers(self) -> int:
        return self.model.config.num_hidden_layers

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.model.config.eos_token_ids

    @property
    def history(self) -> tuple[int, ...]:
        """The committed tokens, as a copy."""
        return tuple(self._history)

    def __len__(self) -> int:
        return len(self._history)

    def apart(self) -> "Decoder":
        """Return a decoder of the same model with an empty cache of the same kind."""
        other = type(self)(self.model, self.cache.empty_like())
        other.context_length = self.context_length
        other.cache.steady = None
        other.known_form = self.known_form
        return other

    # ---- text ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget the history and release the cache."""
        self.revision += 1
        self.cache.reset()
        self._forwards.drop()
        self._num_read = 0
        self._history.clear()
        self._last_hidden, self._is_torn = None, False
        self._readers.forget(0)

    def be_exact(self, form: ExactForm | None) -> None:
        """Decode exactly from now on, or, with None, no more; another form clears the history."""
        if form != self.form:
            self.form, self.cache.steady = form, None if form is None else form.steady
            self.reset()

    def adopt(
        self,
        tokens: Sequence[int],
        cache: Cache,
        readers: Sequence[HiddenStateReader] = (),
        *,
        num_read: int = 0,
    ) -> None:
        """Replace the history by a text with its rows.

        `cache` holds its committed rows; from now on only this decoder changes them. `readers` must
        have the states of the whole text. `num_read` first tokens were read as `num_lasting` says.
        """
        self._forwards.drop()
        self.revision += 1
        self._num_read = num_read
        self._forwards.cache, self._history = cache, list(tokens)
        self._last_hidden, self._is_torn = None, False
        self._readers = Readers(readers)
        self._forwards.capture = self._readers.capture

    def attach(self, readers: Sequence[HiddenStateReader]) -> None:
        """Replace the readers of hidden states.

        A new reader has not seen the states of earlier tokens. Then the history is cleared, and
        the caller must observe its tokens again.
        """
        is_same = self._readers.members == tuple(readers)
        if is_same and self._readers.has_read(len(self)):
            return
        self._readers = Readers(readers)
        self._forwards.capture = self._readers.capture
        if readers:
            self.reset()

    def observe(self, tokens: Sequence[int]) -> None:
        """Append tokens to the history, in chunks; if one fails, the earlier ones stay."""
        self._check_tokens(tokens)
        rest = list(tokens)
        while rest:
            length = self.chunk_length
            chunk, rest = rest[:length], rest[length:]
            states = self._forwards.text(chunk)
            # Computed before the commit: a chunk that fails must not change the history.
            mx.eval(states.final[-1:], states.entering, self.cache.arrays)
            is_whole = len(chunk) == CHUNK and self._num_read == len(self)
            self._commit_rows(range(len(chunk)), chunk, states)
            if self.form is not None and is_whole:
                self._num_read += CHUNK
                self.cache.hold()
            mx.eval(self.cache.arrays)

    @property
    def chunk_length(self) -> int:
        """Number of tokens that the next forward of `observe` may read."""
        return PREFILL_CHUNK if self.form is None else CHUNK

    def write(self, tokens: Sequence[int]) -> None:
        """Append tokens as a reply has written them, which is not to the bits of `observe`."""
        self._check_tokens(tokens)
        assert self.form is not None, "elsewhere `observe` will do"
        rest = list(tokens)
        while rest:
            most = 1 + self.most_nodes
            run, rest = rest[:most], rest[most:]
            chain = DraftTree.chain(mx.array(run, mx.int32))
            mx.eval(self.forward_tree(chain.lengthened(self.form.width(len(run)))))
            self.commit(range(len(run)))

    @property
    def most_nodes(self) -> int:
        """The largest number of draft nodes that keep the form of the next forward."""
        if self.form is None:
            return NO_LIMIT
        return min(self.form.most_nodes, self.cache.steady_rows())

    @property
    def fit(self) -> Callable[[int], int] | None:
        """What returns the width of the forward over a number of rows; None: any width will do."""
        return None if self.form is None else self.form.width

    def rollback_to(self, length: int) -> None:
        """Keep the first `length` tokens of the history.

        These tokens are computed again from the start if the cache has evicted rows that they
        attend to (`reusable`), or if an interrupt stopped a commit.
        """
        if not 0 <= length <= len(self):
            raise ValueError(f"cannot go back to {length} tokens; the history has {len(self)}")
        self._forwards.drop()
        start = self.cache.nearest(length)
        if self._is_torn or start is None:
            self._read_anew(self._history[:length])
        elif length < len(self):
            missing = self._history[start:length]
            self._truncate(start)
            self.observe(missing)

    @property
    def num_lasting(self) -> int:
        """The number of first tokens whose rows serve every text that starts with them.

        In exact decoding these are the whole chunks that were read as a prompt.
        """
        return len(self) if self.form is None else self._num_read // CHUNK * CHUNK

    def reusable(self, length: int) -> int:
        """Return the largest length up to `length` that a rollback reaches without a forward."""
        if self.form is not None:
            length = min(length, self._num_read) // CHUNK * CHUNK
            if not self.cache.is_as_read(length):
                return 0
        return 0 if self._is_torn else self.cache.nearest(length) or 0

    # ---- verifying drafts ------------------------------------------------------------------

    def forward_tree(self, tree: DraftTree) -> mx.array:
        """Stage a tree whose root follows the history; return (n_nodes, D) lazy hidden states."""
        return self._forwards.tree(tree).final

    def extend_lower(self, token: int, layer: int) -> mx.array:
        """Stage a token in the layers below `layer`, after those staged by this method.

        If a tree starts with this chain, `forward_tree` continues its rows from `layer` on. Returns
        the (1, D) lazy state entering `layer`.
        """
        return self._forwards.lower(token, layer)

    def extend_chain(self, tokens: mx.array) -> mx.array:
        """Stage a chain of (L,) int32 tokens, possibly lazy, after those staged by this method.

        Returns (L, D) lazy hidden states.
        """
        return self._forwards.chain(tokens).final

    def commit_chain(self, tokens: Sequence[int]) -> None:
        """Commit the first rows of a staged chain, whose tokens are `tokens`; forget the others."""
        if self._forwards.staged != "chain":
            self._forwards.drop()
        if len(tokens) > self.cache.num_staged:
            raise ValueError(
                f"cannot commit {len(tokens)} tokens of a chain of {self.cache.num_staged}"
            )
        self._commit_rows(range(len(tokens)), list(tokens), None)

    def commit(self, path: Sequence[int]) -> None:
        """Commit the staged nodes on `path` and forget the others.

        The path lists node indices from the root (0) down, each the parent of the next; an empty
        path commits no node.
        """
        if not path:
            self._forwards.drop()
            return
        staged = self._forwards.staged
        if not isinstance(staged, tuple):
            raise ValueError(f"no tree is staged, so the path {list(path)} cannot be committed")
        tree, states = staged
        tokens, parents = tree.lists()
        check_branch(path, parents)
        self._commit_rows(path, [tokens[i] for i in path], states)

    def tree_logits(self, tree: DraftTree) -> mx.array:
        """Return (n_nodes, V) logits of a tree; the decoder is unchanged."""
        logits = self.logits(self.forward_tree(tree))
        mx.eval(logits)
        self._forwards.drop()
        return logits

    def next_logits(self) -> mx.array:
        """Return (V,) logits of the token after the history, which must not be empty."""
        return self.logits(self.last_hidden_state())

    def last_hidden_state(self) -> mx.array:
        """Return the final-norm output at the last token of the history, (D,).

        It is stored from the last forward. Only after a rollback is it computed again, and this
        forgets staged rows.
        """
        self._check_history()
        reads_anew = len(self.cache.states) > 0 or self.draft_support != "tree"
        if self._last_hidden is None and reads_anew:
            # A recurrent state already includes the token and cannot go back. A model without tree
            # support may count its rows, and a forward over the last one would count that row
            # twice.
            self._read_anew(self._history)
        if self._last_hidden is None:
            self._last_hidden = self._forwards.last_row(self._history[-1])
        return self._last_hidden[0]

    def hidden_states(self, layers: Sequence[int]) -> tuple[mx.array, list[mx.array]]:
        """Compute the hidden states of the whole history again; the decoder is unchanged.

        Returns (L, D) final-norm output, and for each of `layers` the (L, D) states that enter it.
        """
        self._check_history()
        most = self.num_hidden_layers - 1
        if any(not 0 <= layer <= most for layer in layers):
            raise ValueError(f"layers {list(layers)} are not all between 0 and {most}")
        states = self._forwards.again(self._history, layers)
        return states.final, [states.entering[layer] for layer in layers]

    def logits(self, hidden: mx.array) -> mx.array:
        """Return (..., V) logits of (..., D) final-norm outputs: the model's output head."""
        return self.model.logits(hidden)

    def _commit_rows(
        self, rows: Sequence[int], tokens: list[int], states: HiddenStates | None
    ) -> None:
        self._is_torn = True
        self.revision += 1
        self._forwards.commit(rows)
        self._history.extend(tokens)
        self._last_hidden = None
        if states is not None:
            states = states.rows(rows)
            self._last_hidden = states.final[-1:]
            self._readers.read(tokens, states)
        self._is_torn = False

    def _truncate(self, length: int) -> None:
        self.revision += 1
        self.cache.truncate(length)
        self._num_read = min(self._num_read, length)
        del self._history[length:]
        self._last_hidden = None
        self._readers.forget(length)

    def _read_anew(self, tokens: list[int]) -> None:
        self.revision += 1
        before = self.cache, self._history, self._last_hidden, self._is_torn
        self._forwards.cache, self._history = self.cache.empty_like(), []
        self._last_hidden, self._is_torn, self._num_read = None, False, 0
        self._readers.forget(0)
        try:
            self.observe(tokens)
        except BaseException:  # an interrupt too must leave the decoder unchanged
            self._forwards.cache, self._history, self._last_hidden, self._is_torn = before
            raise

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        most = self.vocab_size - 1
        bad = [token for token in tokens if not 0 <= token <= most]
        if bad:
            raise ValueError(f"token {bad[0]} is not in the vocabulary of 0 to {most}")

    def _check_history(self) -> None:
        if not self._history:
            raise ValueError("the history is empty: observe at least one token first")


def _kinds(cache: Cache | None) -> list[CacheKind]:
    kinds: list[CacheKind] = []
    if cache is not None and cache.max_size is not None:
        kinds.append("rotating")
    if cache is not None and cache.quantization is not None:
        kinds.append("quantised")
    return kinds
