"""The value of `--hosts`: a number of local processes, hosts, or a hostfile of `mlx.launch`."""

from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

from mlx._distributed_utils.common import Host, Hostfile

from mlxspec.errors import MlxspecError

LOCAL = ("127.0.0.1", "localhost", "::1")
_BACKENDS = ("ring", "jaccl", "jaccl-ring")


@dataclass(frozen=True)
class Hosts:
    """The machines of the ranks, this one first.

    Attributes:
        hosts: Rank, name for ssh and addresses of each.
        backend: The back end of `mx.distributed`.
        envs: Environment variables for all ranks, as "NAME=value".
    """

    hosts: tuple[Host, ...]
    backend: str = "ring"
    envs: tuple[str, ...] = ()

    @property
    def are_local(self) -> bool:
        return all(host.ssh_hostname in LOCAL for host in self.hosts)


def read_hosts(text: str) -> Hosts:
    """Return the hosts that a user named.

    `text` is a number of processes on this machine, addresses separated by commas, or the path of a
    hostfile in the format of `mlx.launch` and `mlx.distributed_config`.

    Raises:
        MlxspecError: It is none of these, or names fewer than two ranks.
    """
    try:
        found = _hostfile(text)
    except ValueError as error:
        raise MlxspecError(f"--hosts {text}: {error}; give {_ALLOWED}") from error
    if len(found.hosts) < 2:
        raise MlxspecError(
            f"--hosts {text} names {len(found.hosts)} of the two ranks that are the fewest: leave "
            f"it out, or give {_ALLOWED}"
        )
    backend = found.backend or "ring"
    if backend not in _BACKENDS:
        raise MlxspecError(
            f"--hosts {text} asks for the back end {backend!r}; mlxspec starts "
            f"{', '.join(_BACKENDS)}: for another one, start a script with mlx.launch and load "
            "with group="
        )
    if nameless := [host.ssh_hostname for host in found.hosts if not host.ips]:
        raise MlxspecError(
            f"--hosts {text} gives no address of {', '.join(nameless)}: name hosts by their "
            "addresses, or give a hostfile with `ips`, as mlx.distributed_config writes it"
        )
    return Hosts(tuple(found.hosts), backend, tuple(found.envs))


_ALLOWED = "a number of local processes, addresses separated by commas, or a hostfile of mlx.launch"


def _hostfile(text: str) -> Any:
    if text.isdigit():
        return Hostfile.from_list(",".join([LOCAL[0]] * int(text)) or LOCAL[0])
    path = Path(expanduser(text))
    if path.suffix == ".json" or path.is_file():
        return Hostfile.from_file(str(path))
    return Hostfile.from_list(text)
