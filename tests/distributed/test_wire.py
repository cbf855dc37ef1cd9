"""One connection: frames, signs of life, and its end."""

import socket
import struct
import threading

import pytest

from mlxspec.distributed.wire import Wire, WireError


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    wires = Wire(here), Wire(there)
    yield wires
    for wire in wires:
        wire.close()


def test_facts_and_orders_arrive_in_their_sequence(pair):
    here, there = pair
    here.send(load={"kv_bits": None})
    here.send_orders(b"\x01\x02")
    here.send_orders(b"")

    assert [there.receive(5), there.receive(5), there.receive(5)] == [
        {"load": {"kv_bits": None}},
        b"\x01\x02",
        b"",
    ]


def test_signs_of_life_are_no_message(pair):
    here, there = pair
    here.beat()
    here.beat()
    here.send(go=True)

    assert there.receive(5) == {"go": True}


def test_silence_is_an_error(pair):
    with pytest.raises(WireError, match="no sign of life"):
        pair[1].receive(0.05)


def test_a_large_frame_arrives_whole(pair):
    content = bytes(range(256)) * 4096
    threading.Thread(target=pair[0].send_orders, args=(content,)).start()

    assert pair[1].receive(5) == content


def test_the_end_of_the_other_side_is_an_error(pair):
    pair[0].close()

    with pytest.raises(WireError, match="ended"):
        pair[1].receive(5)


def test_the_own_end_wakes_a_thread_that_waits(pair):
    said = []

    def receive():
        with pytest.raises(WireError) as error:
            pair[0].receive()
        said.append(str(error.value))

    waiting = threading.Thread(target=receive)
    waiting.start()
    pair[0].close()
    waiting.join(5)

    assert said


def test_refuses_a_frame_that_no_rank_sends(pair):
    pair[0]._socket.sendall(struct.pack("<BI", 2, 1 << 30))

    with pytest.raises(WireError, match="not from mlxspec"):
        pair[1].receive(5)
