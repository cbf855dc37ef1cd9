"""Which reply has the engine's target: the newest one that is not over."""

from mlxspec.drafters.base import Drafter, fresh_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.reply.reply import Reply
from mlxspec.target.decoder import Decoder


class Seats:
    """Gives every reply a target to be written at.

    The engine's own target, and the drafter that a reply asked for, are for the newest reply. An
    older one that goes on beside it gets a cache of its own, and a drafter where one can be had.
    """

    def __init__(self) -> None:
        """Begin with nobody seated."""
        self._newest: Reply | None = None  # until it is over

    def seat(self, reply: Reply, target: Decoder) -> None:
        """Give a reply what it is written with, where it has not got it, or no longer.

        Args:
            reply: The reply.
            target: The engine's own.
        """
        newest = self._newest
        if reply.is_seated and (reply.target is not target or newest is reply):
            return
        is_beside = newest is not None and newest is not reply and not newest.is_over
        if reply.has_sat and is_beside:
            apart = Decoder(target.model, target.cache.empty_like())
            reply.sit(apart, _drafter_beside(reply.drafter), reply.budget.fresh())
        else:
            self._newest = reply
            reply.sit(target, reply.drafter, reply.budget)

    def free(self, reply: Reply) -> None:
        """Let a reply go that is over, broke off, or is read no further."""
        if self._newest is reply:
            self._newest = None
            reply.leave()

    def clear(self) -> None:
        """Let go of everybody, as there is no target any more."""
        self._newest = None


def _drafter_beside(drafter: Drafter) -> Drafter:
    """Return a drafter for a text beside the drafter's own: one like it, or none.

    One that reads the hidden states of its target or keeps a cache drafts for one text alone.
    """
    try:
        return fresh_drafter(drafter)
    except ValueError:
        return NoDrafter()
