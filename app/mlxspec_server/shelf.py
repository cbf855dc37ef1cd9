"""The models that the server may answer with: the one it was given, and those on this disk.

The name in a request is compared with a list of names and never opened as a path.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxspec.api import HOST_DRAFTERS
from mlxspec.batch import OpenBatch
from mlxspec.device.memory import usable_gb
from mlxspec.engine.engine import Engine
from mlxspec_server.refusals import Refusal
from mlxspec_server.tools.calls import ToolFormat

_OF_MODEL = 1.3  # memory of a model over its weights: rows, activations
_ANY = ("", "default", "default_model")  # names that clients send where they have none


@dataclass(frozen=True)
class Offer:
    """A model that may be asked for.

    Attributes:
        name: Its name in requests and replies.
        source: What `load` takes.
        size_gb: GB of its weights; 0 where that is not known.
        aliases: Other names of it.
    """

    name: str
    source: str | None
    size_gb: float = 0.0
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class Loaded:
    """A model in memory.

    Attributes:
        offer: What it was asked for as.
        engine: Its engine.
        batch: Writes its replies.
        tools: How it writes calls of tools; None where that is not known.
        num_users: Requests that need it now; it stays in memory until there are none.
    """

    offer: Offer
    engine: Engine
    batch: OpenBatch
    tools: ToolFormat | None
    num_users: int = 0

    @property
    def drafter(self) -> str:
        """Name of the drafter."""
        return self.batch.drafter


@dataclass
class Shelf:
    """Loads and unloads models; one thread uses `load` and `close`.

    Attributes:
        main: The model that the server was given.
        load_engine: Loads an engine from the source of an offer.
        list_offers: Lists the models on this disk.
        batch_size: Replies of a model written together.
        prefix_bytes: Bytes of rows kept of the beginnings of texts.
        loaded: The models in memory.
    """

    main: Offer
    load_engine: Callable[[Offer], Engine]
    list_offers: Callable[[], Sequence[Offer]] = lambda: ()
    batch_size: int = 32
    prefix_bytes: int = 0
    loaded: list[Loaded] = field(default_factory=list)

    def offers(self) -> list[Offer]:
        """Return the models that may be asked for, the main one first."""
        others = [offer for offer in self.list_offers() if offer.source != self.main.source]
        return [self.main, *(offer for offer in others if offer.name != self.main.name)]

    def find(self, name: str) -> Offer:
        """Return the model of a name.

        Raises:
            Refusal: There is none of that name.
        """
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
        """Return a model if it is in memory."""
        return next((one for one in self.loaded if one.offer == offer), None)

    def may_load(self, offer: Offer) -> bool:
        """Return whether a model could be loaded now, idle ones being unloaded for it."""
        return self._fits(offer, [one for one in self.loaded if one.num_users])

    def load(self, offer: Offer) -> Loaded:
        """Load a model; models that nobody uses make room where both do not fit."""
        for one in [one for one in self.loaded if not one.num_users]:
            if not self._fits(offer, self.loaded):
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
        """Return a new batch; a drafter that serves one text only is replaced by "pool"."""
        sizes: Mapping[str, Any] = {
            "batch_size": self.batch_size,
            "prefix_bytes": self.prefix_bytes,
        }
        try:
            return engine.open_batch(**sizes)
        except ValueError:
            return engine.open_batch(drafter=HOST_DRAFTERS["pool"](), **sizes)

    def close(self, loaded: Loaded) -> None:
        """Unload a model."""
        self.loaded.remove(loaded)
        loaded.engine.close()

    def _fits(self, offer: Offer, beside: Sequence[Loaded]) -> bool:
        sizes = [offer.size_gb, *(one.offer.size_gb for one in beside)]
        return not beside or (all(sizes) and sum(sizes) * _OF_MODEL < usable_gb())
