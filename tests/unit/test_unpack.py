"""What a script's pod does beside the script; the rest is in tests/cluster."""

from __future__ import annotations

import pytest

from tfk8s import unpack


class Listener:
    """Stands for a forward: notes where it would listen and where it would lead."""

    def __init__(self, dial, port: int) -> None:
        self.leads_to, self.port = dial.args[0], port


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"local": ["a:2222", "b:2222"]}, {2222: "a:2222", 2223: "b:2222"}),
        (
            {"master": ["m:2222"], "ps": ["p:2222", "q:2222"], "worker": ["w:2222"]},
            {2222: "m:2222", 2223: "p:2222", 2224: "q:2222", 2225: "w:2222"},
        ),
        (
            {"master": ["m:2222"], "ps": ["p:3000", "q:3000"], "worker": ["w:2222"]},
            {2222: "m:2222", 3000: "p:3000", 3001: "q:3000", 2223: "w:2222"},
        ),
    ],
)
def test_relays_count_ports_as_a_single_machine_does(monkeypatch, cluster, expected) -> None:
    monkeypatch.setattr(unpack, "Forward", Listener)
    relays = unpack.relay(cluster, 2222)
    assert {relay.port: relay.leads_to for relay in relays} == expected


def test_relays_end_at_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(unpack, "Forward", Listener)
    cluster = {"a": [f"h{i}:2222" for i in range(300)], "b": ["x:2222"]}
    assert len(unpack.relay(cluster, 2222)) == unpack.MAX_RELAYS
