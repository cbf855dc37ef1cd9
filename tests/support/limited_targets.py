"""Targets that verify chains only, or no draft at all, and see to it that they get no more."""

from contextlib import contextmanager

import mlx.core as mx


class LimitedModel:
    """A tiny model with another `draft_support`; a forward beyond that fails.

    Rows that follow each other come with the position of the first of them, so rows with a
    position each are a tree.
    """

    def __init__(self, model, draft_support):
        self._whole, self.draft_support = model, draft_support
        self.is_verifying = False

    def __getattr__(self, name):
        return getattr(self._whole, name)

    def hidden_states(self, tokens, cache, positions, masks, **more):
        assert not isinstance(positions, mx.array), "a tree reached a target without trees"
        if self.is_verifying and self.draft_support == "none":
            assert tokens.shape[1] == 1, "a draft reached a target without drafts"
        return self._whole.hidden_states(tokens, cache, positions, masks, **more)


@contextmanager
def verifying(engine):
    """Count only the forwards inside as verification; the prompt is read before."""
    engine.target.model.is_verifying = True
    yield
    engine.target.model.is_verifying = False
