"""The numbers that rank 0 sends."""

import struct

import pytest

from mlxspec.distributed.orders import Kind, Order, packed, unpacked


def test_an_order_is_its_kind_its_decoder_a_count_and_so_many_numbers():
    message = packed([Order(Kind.TREE, 3, (7, 8, -1, 0))])

    assert message == struct.pack("<7i", 6, 3, 4, 7, 8, -1, 0)


def test_a_message_holds_several_orders_in_their_sequence():
    orders = [Order(Kind.COMMIT, 0, (0, 2)), Order(Kind.RESET, 1), Order(Kind.TREE, 0, (5, -1))]

    assert list(unpacked(packed(orders))) == orders


@pytest.mark.parametrize("cut", [1, 4, 8, 12])
def test_rejects_a_message_that_ends_within_an_order(cut):
    message = packed([Order(Kind.OBSERVE, 0, (4, 5, 6))])

    with pytest.raises(ValueError, match="message"):
        list(unpacked(message[:-cut]))


def test_rejects_an_order_that_is_not_known():
    with pytest.raises(ValueError, match="99"):
        list(unpacked(struct.pack("<3i", 99, 0, 0)))
