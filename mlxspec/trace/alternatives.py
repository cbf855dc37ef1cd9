"""The tokens that could have been at a position of a reply, with their probabilities. No MLX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alternative:
    """A token that could have followed.

    Attributes:
        prob: Its probability under the settings of the reply, from which the token was drawn; at
            temperature 0 it is 1 for the best token. None if the caller's own sampler drew.
    """

    token: int
    text: str  # the token decoded on its own, for display only
    model_prob: float  # its probability under the model alone: temperature 1, no filter, no penalty
    prob: float | None
