"""The round: the same six lines for one reply and for the replies of a batch."""

from typing import Protocol, TypeVar

D = TypeVar("D")
P = TypeVar("P")
R = TypeVar("R")


class Writer(Protocol[D, P, R]):
    """Writes the rounds of one reply, or of the replies that share a forward of the target.

    Drafts, pending rounds and rounds are those of one reply, or lists with one for each.

    Attributes:
        ahead: The next round, if it is already launched.
    """

    ahead: P | None

    def propose(self) -> D:
        """Return the drafts of a round, cut to the nodes that are worth verifying."""

    def verify(self, drafts: D) -> P:
        """Verify drafts with one forward of the target over all of their nodes; all is lazy."""

    def look_ahead(self, pending: P) -> None:
        """Launch the next round if it is certain to follow and to be plain."""

    def take(self, pending: P) -> R:
        """Wait for the device once, and emit the tokens of the round."""

    def commit(self, rounds: R) -> None:
        """Commit the rows of the accepted paths, unless `look_ahead` has done so."""

    def update(self, rounds: R) -> None:
        """Update drafters and budgets with a round, and report it."""


def write_round(writer: Writer[D, P, R]) -> None:
    """Write one round: one target forward, and one wait for the device."""
    drafts = writer.propose()  # a tree below the last token of each reply, as large as pays
    pending = writer.ahead or writer.verify(drafts)  # ONE pass of the target over all their nodes
    writer.look_ahead(pending)  # begin the next round, where it needs no token of this one
    rounds = writer.take(pending)  # wait: which paths stay, which tokens are added
    writer.commit(rounds)  # keep the accepted rows, forget the rest
    writer.update(rounds)  # drafters and budgets learn which tokens were accepted
