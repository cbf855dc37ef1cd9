"""Probabilities of the target at temperature 1, turned into those under the sampling params.

A drafter that stores the target's probabilities ranks nodes by what the target will draw: at a
temperature below 1 the best tokens gain, and a token that a filter cuts is not worth a row.
"""

from collections.abc import Mapping

from mlxspec.params import SamplingParams
