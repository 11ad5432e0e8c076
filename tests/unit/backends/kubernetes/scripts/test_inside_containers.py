"""The stacks of pods and what they use, from a command in their containers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import websocket
from fakes.web_socket import Stream, client_that_opens

from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.scripts import inside_containers
from tfk8s.backends.stacks import ProcessStacks, Stacks
from tfk8s.backends.usage import Usage
from tfk8s.core.spec import Task
from tfk8s.render import manifests, warm_job
from tfk8s.render.script_job import JOB_NAME

BINARY = websocket.ABNF.OPCODE_BINARY
SUCCESS = (BINARY, b'\3{"status": "Success"}')
CAUSES = [{"reason": "ExitCode", "message": "1"}]
FAILURE = (BINARY, b"\3" + json.dumps({"status": "Failure", "details": {"causes": CAUSES}}).encode())
PROCESS = {"pid": 1, "state": "S", "computes": False, "python": None, "problem": "", "script": ""}
CLUSTER: Any = SimpleNamespace(
    name="mnist", namespace="ml", tasks=[Task("worker", 0), Task("worker", 1)], program_job=lambda _: None
)


def pod(job: str, component: str, phase: str = "Running") -> dict[str, Any]:
    labels = {JOB_NAME: job, manifests.COMPONENT: component}
    return {"metadata": {"name": f"{job}-x", "labels": labels}, "status": {"phase": phase}}


PODS = [
    pod("mnist-script-000001", manifests.SCRIPT),
    pod("mnist-script-000002", manifests.SCRIPT, "Succeeded"),
    pod("mnist-warm-8f14e45f-1b2c", warm_job.COMPONENT),
]


def test_stacks_of_a_task_of_scripts_and_of_a_script_in_a_warm_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "mnist-worker-1": [PROCESS],
        "mnist-script-000001-x": [{**PROCESS, "pid": 2}],
        "mnist-warm-8f14e45f-1b2c-x": [
            {**PROCESS, "pid": 3, "script": "script-000003"}, {**PROCESS, "pid": 4, "script": "script-000004"},
        ],
    }  # fmt: skip
    opened: list[str] = []

    def open_stream(_: object, url: str, *__: object) -> Stream:
        name = url.partition("/pods/")[2].partition("/")[0]
        opened.append(name)
        text = json.dumps(found[name]).encode()
        return Stream((BINARY, b"\1" + text[:9]), (BINARY, b"\1" + text[9:]), SUCCESS)

    monkeypatch.setattr(streams, "open_stream", open_stream)
    client: Any = SimpleNamespace(get=lambda *_: {"items": PODS})

    def process(pid: int) -> ProcessStacks:
        return ProcessStacks(pid=pid, state="S", computes=False)

    chosen = ["worker/1", "script-000001", "script-000002", "script-000004"]
    assert inside_containers.read_stacks(client, CLUSTER, chosen) == [
        Stacks("worker/1", (process(1),)),
        Stacks("script-000001", (process(2),)),
        Stacks("script-000002", problem="has no process"),
        Stacks("script-000004", (process(4),)),
    ]
    assert sorted(opened) == sorted(found), "one look at each container"


def test_usage_of_a_task_and_of_a_script_in_a_warm_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps([{"pid": 0, "cpu": 0.5, "memory": 7, "cpu_limit": "2"}]).encode()
    monkeypatch.setattr(streams, "open_stream", lambda *_: Stream((BINARY, b"\1" + answer), SUCCESS))
    client: Any = SimpleNamespace(get=lambda *_: {"items": PODS[2:]})
    assert inside_containers.read_usage(client, CLUSTER, ["worker/1", "script-000004"]) == [
        Usage(name="worker/1", cpu=0.5, memory=7),
        Usage(name="script-000004", problem="shares a warm pod, whose scripts are not told apart"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"[1]", b"{}", b"[" * 9999, b"[" + b" " * inside_containers.MAX_ANSWER, b"\xff",
        json.dumps([{**PROCESS, "pid": "1"}]).encode(), json.dumps([{**PROCESS, "python": [7]}]).encode(),
        json.dumps([{**PROCESS, "python": [{"name": [], "is_main": 1, "frames": [[1]], "call": {}}]}]).encode(),
    ],
)  # fmt: skip
def test_a_container_that_lies(answer: bytes) -> None:
    client = client_that_opens(Stream((BINARY, b"\1" + answer), SUCCESS))
    (found,) = inside_containers.read_stacks(client, CLUSTER, ["worker/0"])
    assert "answer" in found.problem
    assert "can't be read" in found.problem


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([(BINARY, b"\2Traceback\npython3: No module named x\n"), FAILURE], "python3: No module named x"),
        ([], "the stream to pod mnist-worker-0 broke: reset"),
        ([(BINARY, b"\1Welcome!\n[]"), SUCCESS], "the answer of python3 in its container can't be read"),
    ],
)
def test_container_that_can_not_be_looked_into(messages: list[tuple[int, bytes]], problem: str) -> None:
    client = client_that_opens(Stream(*messages))
    assert inside_containers.read_stacks(client, CLUSTER, ["worker/0"]) == [Stacks("worker/0", problem=problem)]


def test_script_of_a_warm_pod_that_can_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = [{**PROCESS, "pid": 3, "state": "T"}, {**PROCESS, "pid": 4, "problem": "no answer in 3 s"}, PROCESS]
    answer = (BINARY, b"\1" + json.dumps(silent).encode())
    words: list[str] = []

    def open_stream(_: object, __: str, query: list[tuple[str, str]], *___: object) -> Stream:
        words.extend(word for name, word in query if name == "command")
        return Stream(answer, SUCCESS)

    monkeypatch.setattr(streams, "open_stream", open_stream)
    client: Any = SimpleNamespace(get=lambda *_: {"items": PODS[2:]})
    (found,) = inside_containers.read_stacks(client, CLUSTER, ["script-000004"])
    assert found.problem == (
        "pid 3 of a warm pod, which may be the script: stopped by a signal; "
        "pid 4 of a warm pod, which may be the script: no answer in 3 s"
    )
    assert words[:3] == ["python3", "-I", "-c"], "the user's modules stay out"


@pytest.mark.parametrize(("code", "is_raised"), [(403, True), (404, False)])
def test_refusals(code: int, is_raised: bool) -> None:
    def refuse(*_: object) -> None:
        raise ApiError(code, "refused")

    client: Any = SimpleNamespace(transport=SimpleNamespace(with_credentials=refuse), url="https://h", context="c")
    if is_raised:
        with pytest.raises(ApiError, match="refused"):
            inside_containers.read_stacks(client, CLUSTER, ["worker/0"])
    else:
        assert inside_containers.read_stacks(client, CLUSTER, ["worker/0"]) == [Stacks("worker/0", problem="refused")]
