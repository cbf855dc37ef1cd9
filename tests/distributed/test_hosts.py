"""The word after --hosts."""

import json

import pytest

from mlxspec.distributed.processes import read_hosts
from mlxspec.errors import MlxspecError


def test_a_number_means_so_many_processes_here():
    hosts = read_hosts("3")

    assert [host.ssh_hostname for host in hosts.hosts] == ["127.0.0.1"] * 3
    assert [host.rank for host in hosts.hosts] == [0, 1, 2]
    assert hosts.backend == "ring"


def test_a_list_names_addresses():
    hosts = read_hosts("127.0.0.1,192.0.2.7")

    assert [host.ips for host in hosts.hosts] == [["127.0.0.1"], ["192.0.2.7"]]


def test_reads_a_hostfile_of_mlx_launch(tmp_path):
    entries = [
        {"ssh": "here", "ips": ["192.0.2.1"], "rdma": [None, "rdma_en2"]},
        {"ssh": "there", "ips": ["192.0.2.2"], "rdma": ["rdma_en2", None]},
    ]
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"backend": "jaccl", "envs": ["A=1"], "hosts": entries}))

    hosts = read_hosts(str(file))

    assert [host.ssh_hostname for host in hosts.hosts] == ["here", "there"]
    assert (hosts.backend, hosts.envs) == ("jaccl", ["A=1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "names 1 of the two ranks"),
        ("0", "names 0 of the two ranks"),
        ("one-host,other-host", "no address of one-host, other-host"),
        ("127.0.0.1,,192.0.2.7", "empty"),
        ("missing.json", "exist"),
    ],
)
def test_says_what_is_wrong_and_what_to_give(text, said):
    with pytest.raises(MlxspecError, match=said):
        read_hosts(text)


def test_refuses_a_back_end_that_it_cannot_start(tmp_path):
    file = tmp_path / "hosts.json"
    entries = [{"ssh": name, "ips": [f"192.0.2.{rank}"]} for rank, name in enumerate("ab")]
    file.write_text(json.dumps({"backend": "mpi", "hosts": entries}))

    with pytest.raises(MlxspecError, match=r"'mpi'.*mlx\.launch"):
        read_hosts(str(file))
