"""Readers with faults that a fuzzer has to find: one input of three is fatal to each."""

import os
from random import Random

import numpy as np

from mlxspec.errors import MlxspecError


class Raises:
    """Raises an exception that is no error of mlxspec."""

    refusals = (MlxspecError,)
    order = tuple(Random(f"0 {index}").random() for index in range(3))  # of the seed 0

    def __init__(self, folder):
        self._index = None

    def make(self, draw, folder):
        self._index = self.order.index(draw.random())
        return "nothing"

    def read(self, folder):
        if self._index == 0:
            raise MlxspecError("it is refused")
        if self._index == 1:
            self.fail()

    def fail(self):
        raise KeyError("a mistake")


class Crashes(Raises):
    """Ends the whole process."""

    def fail(self):
        os.abort()


class Allocates(Raises):
    """Allocates memory that it never uses."""

    def fail(self):
        np.empty(2**40, np.uint8)


class SaysNothing(Raises):
    """Refuses with an empty message."""

    def fail(self):
        raise MlxspecError
