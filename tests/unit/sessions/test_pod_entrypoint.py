"""What a script's pod does beside the script; the rest is in tests/cluster."""

from __future__ import annotations

import os

import pytest

from tfk8s.sessions import error_names, pod_entrypoint

END = pod_entrypoint.END.decode()


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
    monkeypatch.setattr(pod_entrypoint, "Forward", Listener)
    relays = pod_entrypoint.relay(cluster, 2222)
    assert {relay.port: relay.leads_to for relay in relays} == expected


def test_relays_end_at_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(pod_entrypoint, "Forward", Listener)
    cluster = {"a": [f"h{i}:2222" for i in range(300)], "b": ["x:2222"]}
    assert len(pod_entrypoint.relay(cluster, 2222)) == pod_entrypoint.MAX_RELAYS


@pytest.mark.parametrize("noted", ["", error_names.A_TASK_FAILED_JUST_NOW])
def test_either_stream_ends_with_how_the_script_ended(monkeypatch, tmp_path, noted) -> None:
    written: dict[int, bytes] = {}
    monkeypatch.setattr(os, "write", written.__setitem__)
    monkeypatch.setenv(error_names.VARIABLE, str(tmp_path / "verdict"))
    if noted:
        (tmp_path / "verdict").write_text(noted)
    pod_entrypoint.tell_end(3)
    line = written[1].decode().removesuffix("\n")
    assert written[1] == written[2]
    assert pod_entrypoint.read_end(line) == ("", 3, noted)
    assert pod_entrypoint.read_end(f"no end of line{line}") == ("no end of line", 3, noted)


@pytest.mark.parametrize(
    "line", ["", "exit code 3", "\x1eerr", "\x1e\x1etfk8s: exit code ", "\x1e\x1etfk8s: exit code x"]
)
def test_other_lines_say_nothing_of_an_end(line) -> None:
    assert pod_entrypoint.read_end(line) is None
