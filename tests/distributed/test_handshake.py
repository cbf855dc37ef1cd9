"""Before a load the ranks compare what they are: a difference is refused by its name."""

import json
import socket
import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from mlxspec.distributed import rendezvous
from mlxspec.distributed.handshake import check_same, settings_of, weights_fingerprint
from mlxspec.distributed.wire import Wire
from mlxspec.errors import RankLostError
from mlxspec.params import Options

VERSIONS = {"mlx": "1.0", "mlxspec": "0.1"}


@pytest.fixture
def told(monkeypatch):
    """What rank 0 tells all, without a collective: the address and the word."""
    values = SimpleQueue()

    def told_all(value, group):
        if group.rank() == 0:
            for _ in range(group.size()):  # one more, for an intruder
                values.put(value)
            return value
        return values.get(timeout=10)

    monkeypatch.setattr(rendezvous, "told_all", told_all)
    monkeypatch.setattr(rendezvous, "_own_address", lambda: "127.0.0.1")
    return values


def group_of(rank, size=2):
    return SimpleNamespace(rank=lambda: rank, size=lambda: size)


def joined(theirs, monkeypatch, before=lambda: None):
    """Let rank 1 join with its versions; return the connections of rank 0."""
    monkeypatch.setattr(rendezvous, "versions", lambda: VERSIONS)

    def join():
        before()
        host, port, word = rendezvous.told_all(None, group_of(1))
        wire = Wire(socket.create_connection((host, port)))
        wire.send(word=word, rank=1, versions=theirs)

    thread = threading.Thread(target=join)
    thread.start()
    try:
        return rendezvous.accept_ranks(group_of(0))
    finally:
        thread.join()


def test_a_rank_with_the_same_versions_joins(told, monkeypatch):
    assert len(joined(dict(VERSIONS), monkeypatch)) == 1


def test_a_rank_with_other_versions_is_refused(told, monkeypatch):
    with pytest.raises(
        RankLostError, match=r"mlx is 0\.9 on rank 1 and 1\.0 on rank 0: install the same"
    ):
        joined({**VERSIONS, "mlx": "0.9"}, monkeypatch)


def test_who_lacks_the_word_does_not_get_in(told, monkeypatch):
    def intrude():
        host, port, _ = told.get(timeout=10)
        intruder = Wire(socket.create_connection((host, port)))
        intruder.send(word="guess", rank=1, versions={})  # refused by them, if it got so far
        with pytest.raises(Exception, match="ended"):  # before the rank itself comes
            intruder.receive(10)

    assert len(joined(dict(VERSIONS), monkeypatch, intrude)) == 1


def test_other_settings_are_refused_by_name():
    own = settings_of(Options(max_kv_size=64))
    with pytest.raises(RankLostError, match=r"max_kv_size is 32 on rank 2 and 64 on rank 0: do it"):
        check_same(own, [own, {**own, "max_kv_size": 32}], "do it")


def test_a_fingerprint_tells_files_apart(tmp_path):
    def fingerprint(weights, config="{}"):
        (tmp_path / "config.json").write_text(config)
        (tmp_path / "model.safetensors").write_bytes(weights)
        return weights_fingerprint(tmp_path)

    whole = bytes(4 << 20)
    other = whole[: 3 << 20] + b"\1" + whole[(3 << 20) + 1 :]  # at one of the 64 places
    found = [fingerprint(whole), fingerprint(other), fingerprint(whole[:-1])]
    found.append(fingerprint(whole, json.dumps({"layers": 1})))
    assert len(set(found)) == 4
    assert fingerprint(whole) == found[0]
