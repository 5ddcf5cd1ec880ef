"""What the Redis store makes of errors that have no class of their own."""

from passback.stores.redis.errors import is_closed_socket

UVLOOPS = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"


def test_a_connection_that_broke_while_it_was_opened_is_known_by_uvloops_words() -> None:
    assert is_closed_socket(RuntimeError(UVLOOPS))
    assert not is_closed_socket(RuntimeError("no running event loop"))
