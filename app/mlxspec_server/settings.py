"""The settings of the server, checked."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from mlxspec.params import GenerationParams

MIB = 1 << 20


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        api_key: The key that a request has to state; "" for none.
        is_insecure: Whether other machines may ask without a key.
        hosts: More names by which requests may call this machine, where it listens on it alone.
        origins: Web origins that may read replies (CORS); none by default.
        max_body_bytes: The most bytes of a request.
        max_waiting: Requests that may wait, beyond those that are answered.
        max_connections: Connections at once.
        header_s: Seconds that the header of a request may take, from its first byte on.
        body_s: Seconds that its body may take.
        stall_s: Seconds for which a client may read nothing of an answer that waits.
        batch_size: Replies written together.
        prefix_bytes: Bytes of rows kept of the beginnings of texts.
        last_replies_s: Seconds that the replies in progress have when the server stops.
        keep_alive_s: Seconds of silence after which a stream says that it is alive.
        params: Settings of a reply where its request names none.

    Raises:
        ValueError: Other machines could ask without a key, or a number is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = ""
    is_insecure: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 * MIB
    max_waiting: int = 64
    max_connections: int = 256
    header_s: float = 10.0
    body_s: float = 60.0
    stall_s: float = 30.0
    batch_size: int = 32
    prefix_bytes: int = 1024 * MIB
    last_replies_s: float = 10.0
    keep_alive_s: float = 5.0
    params: GenerationParams = field(default_factory=GenerationParams)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ValueError(f"--port must be between 0 and 65535; got {self.port}")
        for name, number, least in (
            ("max_body_bytes", self.max_body_bytes, 1),
            ("max_waiting", self.max_waiting, 0),
            ("max_connections", self.max_connections, 1),
            ("batch_size", self.batch_size, 1),
            ("prefix_bytes", self.prefix_bytes, 0),
        ):
            if number < least:
                raise ValueError(f"{name} must be {least} or more; got {number}")
        if not (self.is_loopback or self.api_key or self.is_insecure):
            raise ValueError(
                f"--host {self.host} lets other machines ask: give --api-key KEY, or say "
                "--insecure to let anyone ask who reaches this one"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
