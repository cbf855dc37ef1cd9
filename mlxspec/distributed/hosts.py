"""The value of `--hosts`: a number of local processes, hosts, or a hostfile of `mlx.launch`."""

from os.path import expanduser
from pathlib import Path

from mlx._distributed_utils.common import Hostfile

from mlxspec.errors import MlxspecError

LOCAL = ("127.0.0.1", "localhost", "::1")
_BACKENDS = ("ring", "jaccl", "jaccl-ring")
_ALLOWED = "a number of local processes, addresses separated by commas, or a hostfile of mlx.launch"


def read_hosts(text: str) -> Hostfile:
    """Return the hosts that a user named, this machine first, with one of our back ends.

    `text` is a number of processes on this machine, addresses separated by commas, or the path of a
    hostfile in the format of `mlx.launch` and `mlx.distributed_config`.
    """
    path = Path(expanduser(text))
    try:
        if text.isdigit():
            found: Hostfile = Hostfile.from_list(LOCAL[0], int(text))
        elif path.suffix == ".json" or path.is_file():
            found = Hostfile.from_file(str(path))
        else:
            found = Hostfile.from_list(text)
    except ValueError as error:
        raise MlxspecError(f"--hosts {text}: {error}; give {_ALLOWED}") from error
    if len(found.hosts) < 2:
        raise MlxspecError(
            f"--hosts {text} names {len(found.hosts)} of the two ranks that are the fewest: leave "
            f"it out, or give {_ALLOWED}"
        )
    found.backend = found.backend or "ring"
    if found.backend not in _BACKENDS:
        raise MlxspecError(
            f"--hosts {text} asks for the back end {found.backend!r}; mlxspec starts "
            f"{', '.join(_BACKENDS)}: for another one, start a script with mlx.launch and load "
            "with group="
        )
    if nameless := [host.ssh_hostname for host in found.hosts if not host.ips]:
        raise MlxspecError(
            f"--hosts {text} gives no address of {', '.join(nameless)}: name hosts by their "
            "addresses, or give a hostfile with `ips`, as mlx.distributed_config writes it"
        )
    return found
