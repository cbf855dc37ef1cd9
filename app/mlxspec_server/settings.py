"""The settings of the server, with their checks."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from mlxspec.params import GenerationParams
from mlxspec.params.checks import whole

MIB = 1 << 20
LAST_REPLIES_S = 10  # seconds that running replies have when the server stops

_LEAST = {
    "max_body_bytes": 1,
    "max_waiting": 0,
    "max_connections": 1,
    "batch_size": 1,
    "prefix_bytes": 0,
}


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server; `params` are the defaults for absent request fields."""

    host: str = "127.0.0.1"
    port: int = 8080  # 0 takes a free one
    api_key: str = ""
    is_insecure: bool = False  # whether other machines may ask without a key
    hosts: tuple[str, ...] = ()  # further host names that requests may use on loopback
    origins: tuple[str, ...] = ()  # web origins that may read replies (CORS)
    max_body_bytes: int = 16 * MIB
    max_waiting: int = 64  # requests that may queue beyond the running ones
    max_connections: int = 256
    header_s: float = 10.0  # seconds for the header of a request, from its first byte
    body_s: float = 60.0  # seconds for its body
    stall_s: float = 30.0  # seconds for which a client may read nothing of a pending answer
    batch_size: int = 32
    prefix_bytes: int = 1024 * MIB  # bytes of cache rows kept of shared text prefixes
    keep_alive_s: float = 5.0  # seconds of silence after which a stream sends a sign of life
    params: GenerationParams = field(default_factory=GenerationParams)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ValueError(f"--port must be between 0 and 65535; got {self.port}")
        for name, least in _LEAST.items():
            whole(name, getattr(self, name), f"{least} or more", least=least)
        if not (self.is_loopback or self.api_key or self.is_insecure):
            raise ValueError(
                f"--host {self.host} lets other machines ask: give --api-key KEY, or say "
                "--insecure to let anyone ask who reaches this one"
            )

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
