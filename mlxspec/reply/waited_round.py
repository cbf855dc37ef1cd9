"""A round for which the host must wait: the common part of device and host rounds."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import isnan

import mlx.core as mx

from mlxspec.device.backend import sync, values
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.errors import NumericsError
from mlxspec.verify.distribution import NodeDistributions


class WaitedRound(ABC):
    """A round that is not computed yet; every array is lazy.

    Attributes:
        draft: The draft as it was proposed.
        distributions: The target's distributions after each node, if they are needed later.
    """

    draft: Draft
    distributions: NodeDistributions | None

    @property
    @abstractmethod
    def arrays(self) -> list[mx.array]:
        """The arrays that the host needs."""

    @abstractmethod
    def read(self) -> Round:
        """Return the round as Python values; its arrays must be evaluated already.

        Raises:
            NumericsError: As in `wait`.
        """

    def launch(self) -> None:
        """Start the computation on the device without waiting for it."""
        mx.async_eval(*self.arrays)

    def wait(self) -> Round:
        """Wait for the device and return the round as Python values.

        Raises:
            NumericsError: The target computed NaN on the accepted path.
        """
        wait_all([self])
        return self.read()

    def _of_draft(self, round: Round) -> Round:
        """Return a round with the facts of its draft.

        Raises:
            NumericsError: As in `wait`.
        """
        if any(isnan(round.target_probs[node]) for node in (*round.path[1:], -1)):
            raise NumericsError(
                "the target computed no numbers (NaN): its weights are damaged, or too large for "
                "their type; load the model again, from another source or in a wider type: "
                "--dtype float32, in Python load(dtype='float32')"
            )
        probs = self.draft.node_probs
        return replace(
            round,
            draft_probs=None if probs is None else values(probs),
            sources=self.draft.sources,
            num_certain=self.draft.num_certain,
        )


def wait_all(rounds: Sequence[WaitedRound]) -> None:
    """Wait for the device once for the rounds of several sequences; then they can be read."""
    sync(*(array for pending in rounds for array in pending.arrays))
