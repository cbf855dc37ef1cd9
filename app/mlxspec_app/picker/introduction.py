"""Text of the first run about the machine and the model, from facts that the caller provides."""

from collections.abc import Iterator
from dataclasses import dataclass

from mlxspec.drafting.entries import Fit
from mlxspec_app.picker.model_rows import gigabytes


@dataclass(frozen=True)
class Introduction:
    """Facts for the first run; sizes are in GB.

    Attributes:
        cores: CPU cores that can be used.
        computes_on: "CPU", "Metal" or "CUDA".
        blas: BLAS library on a CPU, or "".
        is_slow: Whether drafts cannot pay with that library.
        model_gb: Size on the disk, or None if unknown.
        fit: How the model fits the memory, or None if unknown.
        has_model: Whether the model is on this disk.
    """

    device: str
    cores: int
    memory_gb: float
    computes_on: str
    blas: str
    is_slow: bool
    model: str
    model_gb: float | None
    fit: Fit | None
    has_model: bool

    def machine_lines(self) -> Iterator[str]:
        yield f"{self.device}, {self.cores} cores, {self.memory_gb:.0f} GB of memory"
        where = f"with {self.blas}" if self.blas else ""
        yield f"MLX computes on {self.computes_on} {where}".strip() + "."
        if self.is_slow:
            yield (
                "That library checks n guesses no faster than n words, so drafting cannot pay: "
                "`mlxspec doctor` says how to get a faster one."
            )
        else:
            yield "Checking several guesses at once costs hardly more than one: drafting can pay."

    def model_lines(self) -> Iterator[str]:
        size = "" if self.model_gb is None else f", {gigabytes(self.model_gb)}"
        yield f"{self.model}{size}"
        if self.fit == "fits":
            yield "It fits in memory."
        elif self.fit is not None:
            yield "It may not fit in memory: a smaller or more quantised one is safer."
        yield "It is on this disk." if self.has_model else "It is being downloaded, just this once."
        yield "The drafter that is fastest here is found by measuring, once for each model."
