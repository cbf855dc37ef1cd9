"""Text of the first run about the machine and the model, from facts that the caller provides."""

from collections.abc import Iterator
from dataclasses import dataclass

from mlxspec.drafting.entries import Fit
from mlxspec_app.picker.model_rows import gigabytes


@dataclass(frozen=True)
class Introduction:
    """Facts for the first run; sizes are in GB."""

    device: str
    cores: int
    memory_gb: float
    computes_on: str  # "CPU", "Metal" or "CUDA"
    blas: str  # on a CPU, or ""
    is_slow: bool  # drafts cannot pay with that BLAS
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
