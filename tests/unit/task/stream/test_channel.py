"""Frames of a warm pod's connection, over one connection after another."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from tfk8s import polling
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    """The channels of a client and of a pod, with a connection."""
    client, pod = Channel(), Channel()
    connect(client, pod)
    yield client, pod
    client.detach()
    pod.detach()


def connect(one: Channel, other: Channel) -> None:
    """Give two channels a connection to each other, as their greetings do."""
    near, far = socket.socketpair()
    received = other.received
    other.attach(far, one.received)
    one.attach(near, received)


def receive(one: Channel) -> list[channel.Frame]:
    """Return the frames of a channel until its connection has no more."""
    frames = []
    while one.connection is not None and polling.ready({one.connection.fileno()}, 0):
        frames += one.read()
    return frames


def test_frames_arrive_in_order_and_are_acknowledged(pair: tuple[Channel, Channel]) -> None:
    client, pod = pair
    client.send_json(channel.RUN, {"archive": 3})
    client.send(channel.ARCHIVE, b"abc")
    assert receive(pod) == [(channel.RUN, b'{"archive": 3}'), (channel.ARCHIVE, b"abc")]
    assert not client.is_acknowledged
    pod.acknowledge()
    assert receive(client) == []
    assert client.is_acknowledged


def test_another_connection_repeats_what_was_lost_and_no_more(pair: tuple[Channel, Channel]) -> None:
    client, pod = pair
    pod.send(channel.OUTPUT, b"one")
    assert receive(client) == [(channel.OUTPUT, b"one")]  # the acknowledgement is lost
    pod.send(channel.OUTPUT, b"two")
    client.detach()  # "two" is lost
    assert receive(pod) == []
    assert pod.connection is None
    pod.send(channel.ERROR, b"three")
    client.send(channel.SIGNAL, b"2")
    connect(client, pod)
    pod.write()
    client.write()
    assert receive(client) == [(channel.OUTPUT, b"two"), (channel.ERROR, b"three")]
    assert receive(pod) == [(channel.SIGNAL, b"2")]


def test_a_sender_is_full_until_the_peer_acknowledges(pair: tuple[Channel, Channel]) -> None:
    client, pod = pair
    block = bytes(1 << 16)
    while not pod.is_full:
        pod.send(channel.OUTPUT, block)
    size = 0
    while pod.has_output:
        size += sum(len(data) for _, data in receive(client))
        pod.write()
    size += sum(len(data) for _, data in receive(client))
    assert size >= channel.MAX_UNACKNOWLEDGED
    client.acknowledge()
    pod.read()
    assert not pod.is_full


def test_a_silent_connection_carries_nothing_but_signs_of_life(
    pair: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, pod = pair
    client.send(channel.SIGNAL, b"2")
    assert receive(pod) == [(channel.SIGNAL, b"2")]
    pod.acknowledge()
    sizes = []
    for _ in range(3):  # each side acknowledges after each read
        sizes.append((len(peek(client)), len(peek(pod))))
        for one in pair:
            receive(one)
            one.acknowledge()
            one.keep_alive()
    acknowledgement = sizes[0][0]
    assert sizes == [(acknowledgement, 0), (0, 0), (0, 0)]
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.0)
    client.keep_alive()
    assert len(peek(pod)) == acknowledgement


def peek(one: Channel) -> bytes:
    """Return what has arrived on a channel's connection."""
    assert one.connection is not None
    try:
        return one.connection.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def test_short_frames_do_not_wait_for_the_answers_to_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
    one = Channel()
    one.attach(near, 0)
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    one.detach()


def test_greetings() -> None:
    near, far = socket.socketpair()
    with near, far:
        channel.say_hello(near, {"script": "script-1", "received": 7})
        assert channel.hear_hello(far) == {"script": "script-1", "received": 7}
        for text in (b"[" * 60_000, b"[1]", b"1"):
            far.sendall(struct.pack("!BI", channel.HELLO, len(text)) + text)
            with pytest.raises(OSError, match="the peer is no warm pod"):
                channel.hear_hello(near)
        far.sendall(struct.pack("!BI", channel.HELLO, 3) + b"{")
        with pytest.raises(TimeoutError):
            channel.hear_hello(near, 0.01)
        far.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(OSError, match="the peer is no warm pod"):
            channel.hear_hello(near)
        far.close()
        with pytest.raises(OSError, match="the peer is no warm pod"):
            channel.hear_hello(near)
