"""Assigns the engine's target to one reply: the newest one that is not over."""

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.reply.reply import Reply


class Seats:
    """Assigns a target and a drafter to every reply.

    The newest reply gets the engine's target and its requested drafter. An older one that continues
    at the same time gets its own cache, and a new drafter if one can be made.
    """

    def __init__(self) -> None:
        self._newest: Reply | None = None  # until it is over

    def seat(self, reply: Reply, target: Decoder) -> None:
        """Assign target, drafter and budget to a reply, unless it still has them.

        `target` is the engine's target.
        """
        newest = self._newest
        if reply.is_seated and (reply.target is not target or newest is reply):
            return
        is_beside = newest is not None and newest is not reply and not newest.is_over
        # A reply that has computed nothing yet is the newest one, so it gets the target.
        if reply.has_sat and is_beside:
            apart = target.apart()
            reply.sit(apart, _drafter_beside(reply.drafter), reply.budget.fresh())
        else:
            self._newest = reply
            reply.sit(target, reply.drafter, reply.budget)

    def free(self, reply: Reply) -> None:
        """Release a reply that is over, failed, or lost its reader."""
        if self._newest is reply:
            self._newest = None
            reply.leave()

    def clear(self) -> None:
        """Release all replies, as the target is gone."""
        self._newest = None


def _drafter_beside(drafter: Drafter) -> Drafter:
    """Return a new drafter like this one for a second text, or `NoDrafter` if that fails.

    A drafter that reads hidden states of its target, or has a cache, serves only one text.
    """
    try:
        return fresh_drafter(drafter)
    except ValueError:
        return NoDrafter()
