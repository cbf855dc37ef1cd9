"""The models of the server: its main model, and those on this disk.

The model name of a request is compared with a list of names and never opened as a path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mlxspec.batch.open import OpenBatch
from mlxspec.device.memory import usable_gb
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec.engine.engine import Engine
from mlxspec_server.body import Refusal
from mlxspec_server.tools.calls import ToolFormat

_OF_MODEL = 1.3  # memory of a model relative to its weights: cache rows, activations
_ANY = ("", "default", "default_model")  # names that clients send to mean any model


@dataclass(frozen=True)
class Offer:
    """A model that may be requested; `size_gb`, of its weights, is 0 if unknown."""

    name: str
    source: str | None
    size_gb: float = 0.0
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class Loaded:
    """A model in memory; it may be unloaded only while no request uses it."""

    offer: Offer
    engine: Engine
    batch: OpenBatch
    tools: ToolFormat | None  # None if unknown
    num_users: int = 0

    @property
    def drafter(self) -> str:
        return self.batch.workspace.drafter.name


@dataclass
class Shelf:
    """Loads and unloads models. Only one thread may use `load` and `close`."""

    main: Offer
    load_engine: Callable[[Offer], Engine]
    list_offers: Callable[[], Sequence[Offer]] = lambda: ()
    batch_size: int = 32
    prefix_bytes: int = 0
    loaded: list[Loaded] = field(default_factory=list)

    def offers(self) -> list[Offer]:
        others = [offer for offer in self.list_offers() if offer.source != self.main.source]
        return [self.main, *(offer for offer in others if offer.name != self.main.name)]

    def find(self, name: str) -> Offer:
        if name in (*_ANY, self.main.name, *self.main.aliases):
            return self.main
        offers = self.offers()
        for offer in offers:
            if name in (offer.name, offer.source, *offer.aliases):
                return offer
        known = ", ".join(offer.name for offer in offers[:20])
        message = f"there is no model of the name {name[:100]!r}; there are: {known}"
        raise Refusal(404, message, "model")

    def in_memory(self, offer: Offer) -> Loaded | None:
        return next((one for one in self.loaded if one.offer == offer), None)

    def may_load(self, offer: Offer) -> bool:
        """Return whether a model can be loaded now, after unloading idle ones."""
        return self._fits(offer, [one for one in self.loaded if one.num_users])

    def load(self, offer: Offer) -> Loaded:
        """Load a model, and unload idle models if memory is short."""
        for one in list(self.loaded):
            if not (one.num_users or self._fits(offer, self.loaded)):
                self.close(one)
        engine = self.load_engine(offer)
        try:
            batch = self.open_batch(engine)
        except BaseException:
            engine.close()
            raise
        loaded = Loaded(offer, engine, batch, ToolFormat.of(engine.tokenizer))
        self.loaded.append(loaded)
        return loaded

    def open_batch(self, engine: Engine) -> OpenBatch:
        """Return a new batch; a drafter that serves a single text only is replaced by "pool"."""
        opened = partial(
            engine.open_batch, batch_size=self.batch_size, prefix_bytes=self.prefix_bytes
        )
        try:
            return opened()
        except ValueError:
            return opened(drafter=HOST_DRAFTERS["pool"]())

    def close(self, loaded: Loaded) -> None:
        self.loaded.remove(loaded)
        loaded.engine.close()

    def _fits(self, offer: Offer, beside: Sequence[Loaded]) -> bool:
        sizes = [offer.size_gb, *(one.offer.size_gb for one in beside)]
        return not beside or (all(sizes) and sum(sizes) * _OF_MODEL < usable_gb())
