"""Commands that only look, and how what they see is shown."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest
from documented_commands import page_output
from fakes.command_line import Run
from fakes.terminal import Terminal
from job_files import job_file

from tfk8s.cli import output, start_progress
from tfk8s.core.history.shared import RecordStatus
from tfk8s.core.lifetime import Limits
from tfk8s.core.output.task_notes import BadNode
from tfk8s.core.progress import StepProgress
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogLine
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus, TaskStatus
from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.errors import NoSuchCluster
from tfk8s.testing import CREATED, FakeBackend, change, use_backend

pytest_plugins = ("fakes.command_line",)


STATUS = """\
NAME   PHASE   READY  MASTER   TARGET                 SCRIPTS  AGE    LOCATION
mnist  Failed  2/3    chief/0  grpc://localhost:2222  0        5m12s  /state/mnist

TASK      PHASE   ADDRESS         WHERE    RESTARTS  AGE    REASON
chief/0   Ready   localhost:2222  pid 101  0         5m12s
worker/0  Ready   localhost:2223  pid 102  0         5m12s
worker/1  Failed  localhost:2224  -        2         12s    killed by SIGKILL; restarts in 1 s
"""

TASKS: list[dict[str, Any]] = [
    {"task": "chief/0", "job": "chief", "index": 0, "address": "localhost:2222", "where": "pid 101"},
    {"task": "worker/0", "job": "worker", "index": 0, "address": "localhost:2223", "where": "pid 102"},
    {"task": "worker/1", "job": "worker", "index": 1, "address": "localhost:2224", "where": "pid 103"},
]

DOCUMENT = {
    "name": "mnist",
    "backend": "local",
    "location": "/state/mnist",
    "phase": "Ready",
    "exit_code": None,
    "reason": "",
    "suspended": None,
    "target": "grpc://localhost:2222",
    "master": "chief/0",
    "created": "2023-11-14T22:13:20Z",
    "removed_at": None,
    "idle": None,
    "idle_suspend": None,
    "idle_since": None,
    "lease": None,
    "limits_problem": "",
    "history": None,
    "gang": "",
    "isolation": "",
    "way_out": "",
    "python": "",
    "tensorflow": "",
    "requests": {"cpu": 0.0, "memory": 0, "gpus": 0},
    "cost": None,
    "scripts": [],
    "stragglers": [],
    "bad_nodes": [],
    "tasks": [
        {
            **task,
            "phase": "Ready",
            "restarts": 0,
            "exit_code": None,
            "since": "2023-11-14T22:13:20Z",
            "progress": None,
            "reason": "",
        }
        for task in TASKS
    ],
}


def test_status(run: Run, backend: FakeBackend) -> None:
    reason = "killed by SIGKILL; restarts in 1 s"
    backend.updates = [
        change("worker/1", phase=Phase.FAILED, reason=reason, runs_on="", restarts=2, since=CREATED + 300)
    ]
    assert run("status", "mnist") == (0, STATUS, "")


def test_status_shows_what_all_tasks_request(run: Run) -> None:
    worker = Job(name="worker", tasks=3, cpu=Quantity.parse("1500m"), memory=Quantity.parse("0.5Gi"), gpus=2)
    with use_backend(FakeBackend(job_file("mnist", Job(name="chief"), worker))):
        _, out, _ = run("status", "mnist")
        assert out.splitlines()[:2] == [
            "NAME   PHASE  READY  CPU    MEMORY  GPUS  MASTER   TARGET                 SCRIPTS  AGE    LOCATION",
            "mnist  Ready  4/4    4500m  1536Mi  6     chief/0  grpc://localhost:2222  0        5m12s  /state/mnist",
        ]
        assert json.loads(run("status", "mnist", "-o", "json")[1])["requests"] == {
            "cpu": 4.5, "memory": 3 << 29, "gpus": 6,
        }  # fmt: skip


def test_status_of_a_lost_cluster_has_the_reason(run: Run, backend: FakeBackend) -> None:
    backend.updates = [lambda status: dataclasses.replace(status, reason="its supervisor was killed")]
    _, out, _ = run("status", "mnist")
    assert out.splitlines()[1:5] == [
        "mnist  Failed  3/3    chief/0  grpc://localhost:2222  0        5m12s  /state/mnist",
        "",
        "its supervisor was killed",
        "",
    ]


BY_DURATION = "at 2023-11-14T23:13:20Z (max_duration)"
REMOVES = "removes the cluster"
BY_IDLE = "after 30m without a session and a script (idle)"


@pytest.mark.parametrize(
    ("limits", "idle_since", "text"),
    [
        (Limits(3600, None), None, f"removes the cluster {BY_DURATION}"),
        (Limits(900, None), None, "removes the cluster at 2023-11-14T22:28:20Z (max_duration), in 9m48s"),
        (Limits(3600, 1800), None, f"removes the cluster {BY_DURATION}, or {BY_IDLE}"),
        (Limits(None, 1800), CREATED + 300, f"removes the cluster {BY_IDLE}, 12s so far"),
        (Limits(None, None, 900), None, "removes the cluster after its `run` has been gone for 15m (lease)"),
        (Limits(None, None, 0), None, "removes the cluster when its `run` is gone (lease)"),
        (Limits(None, None, None, 1800), None, f"suspends the cluster {BY_IDLE}"),
        (Limits(None, 3600, None, 1800), None, f"suspends the cluster {BY_IDLE}, and {REMOVES} after 1h of that"),
        (Limits(3600, None, None, 1800), None, f"suspends the cluster {BY_IDLE}, and {REMOVES} {BY_DURATION}"),
    ],
)
def test_status_says_when_the_cluster_is_suspended_and_removed(
    run: Run, backend: FakeBackend, limits: Limits, idle_since: float | None, text: str
) -> None:
    backend.updates = [lambda status: dataclasses.replace(status, limits=limits, idle_since=idle_since)]
    _, out, _ = run("status", "mnist")
    assert out.splitlines()[2:5] == ["", f"tfk8s {text}", ""]


@pytest.mark.parametrize(
    ("limits", "problem", "text"),
    [
        (Limits(300, 1800), "", "tfk8s has not removed the cluster yet: max_duration ended at 2023-11-14T22:18:20Z"),
        (Limits(300, None), "Job a has no pod: why", "max_duration is not kept: Job a has no pod: why"),
        (Limits(None, None, 900), "Job a has no pod: why", "lease is not kept: Job a has no pod: why"),
        (Limits(None, None), "Job a: why", "drain: idle is not kept: Job a: why"),
        (Limits(None, 60, None, 30), "Job a has no pod: why", "idle is not kept: Job a has no pod: why"),
        (Limits(3600, 60), "Job a has no pod: why", "max_duration and idle are not kept: Job a has no pod: why"),
    ],
)
def test_status_promises_no_end_that_is_past_or_that_nothing_brings(
    run: Run, backend: FakeBackend, limits: Limits, problem: str, text: str
) -> None:
    backend.updates = [lambda status: dataclasses.replace(status, limits=limits, limits_problem=problem)]
    _, out, _ = run("status", "mnist")
    assert out.splitlines()[2:5] == ["", text, ""]


def test_status_says_who_starts_the_tasks_together(run: Run, backend: FakeBackend) -> None:
    backend.updates = [lambda status: dataclasses.replace(status, gang="PodGroup")] * 2
    assert run("status", "mnist")[1].endswith("\n\ngang: PodGroup\n")


@pytest.mark.parametrize("place", ["claim past", "bucket s3://team/past"])
@pytest.mark.parametrize(
    ("problem", "words"), [("", ""), ("No space left on device", "; it is not written: No space left on device")]
)
def test_status_says_where_the_record_is(run: Run, backend: FakeBackend, problem: str, words: str, place: str) -> None:
    record = RecordStatus(place, problem)
    backend.updates = [lambda status: dataclasses.replace(status, record=record)] * 4
    assert run("status", "mnist")[1].endswith(f"\n\nhistory: {place}{words}\n")
    assert json.loads(run("status", "mnist", "-o", "json")[1])["history"] == {"place": place, "problem": problem}


def test_status_shows_scripts(run: Run, backend: FakeBackend) -> None:
    scripts = (
        ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command="a.py --steps 5", since=CREATED + 300),
        ScriptStatus(name="script-0a1b2c", phase=ScriptPhase.FAILED, command="--tf1 b.py", since=CREATED, exit_code=7),
    )
    backend.updates = [lambda status: dataclasses.replace(status, scripts=scripts)] * 2
    _, out, _ = run("status", "mnist")
    assert out.splitlines()[1].split()[5] == "1"
    assert out.splitlines()[-3:] == [
        "SCRIPT         PHASE    EXIT  AGE    COMMAND         REASON",
        "script-4e9c21  Running  -     12s    a.py --steps 5",
        "script-0a1b2c  Failed   7     5m12s  --tf1 b.py",
    ]
    _, out, _ = run("status", "mnist", "-o", "json")
    assert json.loads(out)["scripts"][1] == {
        "script": "script-0a1b2c", "phase": "Failed", "exit_code": 7, "command": "--tf1 b.py", "where": "",
        "since": "2023-11-14T22:13:20Z", "progress": None, "reason": "",
    }  # fmt: skip


def test_status_and_ls_show_progress(run: Run, backend: FakeBackend) -> None:
    fast = StepProgress(step=120, total=1000, rate=40.0, metrics={"loss": "0.5", "epoch": "3", "best": "nan"})
    script = ScriptStatus(
        name="script-4e9c21", phase=ScriptPhase.RUNNING, command="a.py", since=CREATED, progress=StepProgress(step=7)
    )
    backend.statuses["mnist"] = dataclasses.replace(
        change("worker/0", progress=fast)(backend.statuses["mnist"]), scripts=(script,)
    )
    _, out, _ = run("status", "mnist")
    cluster = (
        "NAME   PHASE  READY  MASTER   TARGET                 SCRIPTS  "
        "PROGRESS                              AGE    LOCATION\n"
        "mnist  Ready  3/3    chief/0  grpc://localhost:2222  1        "
        "120/1000 (12%), 40 steps/s, 22s left  5m12s  /state/mnist\n"
    )
    assert out.startswith(cluster)
    assert [line.partition("5m12s  ")[2].strip() for line in out.splitlines()[4:7]] == [
        "-", "120/1000 (12%), 40 steps/s, 22s left, loss=0.5, epoch=3, best=nan", "-",
    ]  # fmt: skip
    assert out.splitlines()[-2:] == [
        "SCRIPT         PHASE    EXIT  AGE    PROGRESS  COMMAND  REASON",
        "script-4e9c21  Running  -     5m12s  7         a.py",
    ]
    assert run("ls") == (0, cluster, "")
    document = json.loads(run("status", "mnist", "-o", "json")[1])
    assert [task["progress"] for task in document["tasks"]] == [
        None,
        {
            "step": 120, "total": 1000, "rate": 40.0, "remaining": 22.0,
            "metrics": {"loss": 0.5, "epoch": 3, "best": "nan"},
        },
        None,
    ]  # fmt: skip


def test_status_names_nodes_that_may_be_at_fault(run: Run) -> None:
    backend = FakeBackend(job_file(worker=2))
    bad = BadNode(Task("worker", 1), "node-7", "sees no GPUs")
    backend.statuses["mnist"] = change("worker/1", bad_node=bad)(backend.statuses["mnist"])
    with use_backend(backend):
        lines = run("status", "mnist")[1].splitlines()
        assert "bad node node-7: worker/1 sees no GPUs there, and its job runs on other nodes" in lines
        assert json.loads(run("status", "mnist", "-o", "json")[1])["bad_nodes"] == [
            {"task": "worker/1", "job": "worker", "index": 1, "node": "node-7", "reason": "sees no GPUs"}
        ]


def test_status_names_stragglers(run: Run) -> None:
    status = FakeBackend(job_file(worker=3, ps=2)).statuses["mnist"]
    for name, rate in {"worker/0": 40.0, "worker/1": 4.125, "worker/2": 35.5, "ps/0": 1.0, "ps/1": 1.5}.items():
        status = change(name, phase=Phase.RUNNING, progress=StepProgress(step=1, rate=rate))(status)
    backend = FakeBackend(job_file(worker=3, ps=2))
    backend.statuses["mnist"] = status
    with use_backend(backend):
        lines = run("status", "mnist")[1].splitlines()
        assert [line for line in lines if "slow" in line] == [
            "slow: worker/1 makes 4.12 steps/s, and 35.5 are usual in its job"
        ]
        assert json.loads(run("status", "mnist", "-o", "json")[1])["stragglers"] == [
            {"task": "worker/1", "job": "worker", "index": 1, "rate": 4.125, "median": 35.5}
        ]


def test_the_page_of_programs_has_such_a_status(run: Run) -> None:
    backend = FakeBackend(job_file(worker=1))
    half = StepProgress(step=120, total=1000, rate=35.1, metrics={"loss": "0.31"})
    row = change("worker/0", phase=Phase.RUNNING, runs_on="pid 22609", since=CREATED + 128, progress=half)
    backend.statuses["mnist"] = row(backend.statuses["mnist"])
    with use_backend(backend):
        _, _, tasks = run("status", "mnist")[1].partition("\n\n")
    assert f"…\n{tasks}" == page_output("docs/programs.md", "tfk8s status mnist")


def test_terminal_shows_bars(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    half = change("worker/0", progress=StepProgress(step=5, total=10, rate=2.0, metrics={"loss": "0.5"}))
    (status,) = backend.clusters()
    line = start_progress.task_table(half(status).tasks, screen).splitlines()[2]
    assert "[#####-----] 5/10 (50%), 2 steps/s, 2s left, loss=0.5" in line
    shown = start_progress.cell(half(status).progress, screen, short=True)
    assert shown == "[#####-----] 5/10 (50%), 2 steps/s, 2s left"
    assert (start_progress.cell(None, screen), start_progress.cell(StepProgress(step=7), screen)) == ("", "7")


def test_logs_of_a_script(run: Run, backend: FakeBackend) -> None:
    backend.exit_code = 7
    assert run("logs", "mnist", "script-4e9c21")[0] == 0
    assert run("logs", "-f", "--tail", "5", "--since", "2m", "--timestamps", "mnist", "script-4e9c21")[0] == 7
    assert backend.calls == [
        "show mnist script-4e9c21 follow=False tail=None brief=True",
        "show mnist script-4e9c21 follow=True tail=5 since=120.0 timestamps=True brief=True",
    ]
    run("logs", "--all", "mnist", "script-4e9c21")
    assert backend.calls[-1] == "show mnist script-4e9c21 follow=False tail=None"


def test_logs_leave_out_what_tensorflow_writes_for_itself(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = "I0000 00:00:1795579734.3  12037 dataset.cc:997] fine", "loss 0.5"
    lines = [LogLine(task=Task("worker", 0), text=text) for text in (own, other, own)]
    monkeypatch.setattr(backend, "logs", lambda *_: iter(lines))
    left_out = "2 lines of TensorFlow's own log left out: --all prints them\n"
    assert run("logs", "mnist", "worker/0") == (0, f"{other}\n", left_out)
    assert run("logs", "--all", "mnist", "worker/0") == (0, f"{own}\n{other}\n{own}\n", "")
    lines[:] = lines[:1]
    assert run("logs", "mnist", "worker/0")[1:] == ("", left_out.replace("2 lines", "1 line"))


def test_status_as_json(run: Run, backend: FakeBackend) -> None:
    code, out, err = run("status", "mnist", "-o", "json")
    assert (code, json.loads(out), err) == (0, DOCUMENT, "")


def test_status_watched_ends_with_the_cluster(run: Run, backend: FakeBackend) -> None:
    def gone(status: ClusterStatus) -> ClusterStatus:
        raise NoSuchCluster('there is no cluster "mnist"')

    backend.updates = [lambda status: status, gone]
    code, out, err = run("status", "--watch", "mnist")
    assert (code, out.count("Ready"), err) == (0, 3, 'cluster "mnist" was removed\n')
    assert run("status", "--watch", "absent")[0] == 2


def test_status_watched_on_a_plain_stream_is_a_line_a_change(run: Run, backend: FakeBackend) -> None:
    backend.updates = [
        lambda status: status,
        change("worker/1", phase=Phase.STARTING, reason="killed by SIGKILL"),
        _end,
    ]
    assert run("status", "--watch", "mnist") == (
        130,
        (
            "chief/0   Ready     pid 101\n"
            "worker/0  Ready     pid 102\n"
            "worker/1  Ready     pid 103\n"
            "worker/1  Starting  pid 103, killed by SIGKILL\n"
        ),
        "",
    )


def test_status_watched_as_json_is_a_document_a_line(run: Run, backend: FakeBackend) -> None:
    backend.updates = [lambda status: status, change("worker/1", phase=Phase.STARTING), _end]
    code, out, _ = run("status", "--watch", "-o", "json", "mnist")
    assert code == 130
    assert [json.loads(line)["phase"] for line in out.splitlines()] == ["Ready", "Starting"]


def _end(status: ClusterStatus) -> ClusterStatus:
    raise KeyboardInterrupt


def test_ls_names_the_claims_of_removed_clusters(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [
        KeptClaim(name=name, cluster=cluster, location=location, size="1Gi")
        for name, cluster, location in (("a", "mnist", "/state/mnist"), ("b", "mnist", "elsewhere"), ("c", "old", "x"))
    ]
    monkeypatch.setattr(backend, "shared", SimpleNamespace(claims=lambda: claims))
    _, _, err = run("ls")
    assert err == (
        'kept: claim b (1Gi) of cluster "mnist", which was removed; elsewhere\n'
        'kept: claim c (1Gi) of cluster "old", which was removed; x\n'
    )
    assert run("ls", "-o", "json")[2] == ""


def test_ls(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.STARTING
    backend.apply(job_file("a", worker=1))
    assert run("ls") == (
        0,
        (
            "NAME   PHASE     READY  MASTER    TARGET                 SCRIPTS  AGE    LOCATION\n"
            "a      Starting  0/1    worker/0  grpc://localhost:2222  0        5m12s  /state/a\n"
            "mnist  Ready     3/3    chief/0   grpc://localhost:2222  0        5m12s  /state/mnist\n"
        ),
        "",
    )


def test_ls_says_why_all_tasks_of_a_cluster_wait(run: Run, backend: FakeBackend) -> None:
    found = backend.statuses["mnist"]
    tasks = [dataclasses.replace(task, phase=Phase.PENDING, reason="place 2 in the queue") for task in found.tasks]
    backend.statuses["mnist"] = dataclasses.replace(found, tasks=tuple(tasks))
    assert run("ls")[1] == (
        "NAME   PHASE    READY  MASTER   TARGET                 SCRIPTS  AGE    LOCATION      REASON\n"
        "mnist  Pending  0/3    chief/0  grpc://localhost:2222  0        5m12s  /state/mnist  place 2 in the queue\n"
    )
    tasks[0] = dataclasses.replace(tasks[0], reason="another")
    backend.statuses["mnist"] = dataclasses.replace(found, tasks=tuple(tasks))
    assert "REASON" not in run("ls")[1]


def test_ls_as_json(run: Run, backend: FakeBackend) -> None:
    assert json.loads(run("ls", "-o", "json")[1]) == [DOCUMENT]


def test_ls_of_nothing(run: Run, backend: FakeBackend) -> None:
    backend.statuses.clear()
    assert run("ls") == (0, "", "no clusters\n")
    assert run("ls", "-o", "json") == (0, "[]\n", "")


def test_devices(run: Run, backend: FakeBackend) -> None:
    assert run("devices", "mnist") == (
        0,
        ("TASK      DEVICE  MEMORY  DESCRIPTION\nchief/0   CPU:0   -\nworker/0  CPU:0   -\nworker/1  CPU:0   -\n"),
        "",
    )


def test_devices_with_the_free_gpus_of_nodes(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "shared", SimpleNamespace(free_gpus=lambda: "free: a 1 of 8 nvidia.com/gpu"))
    assert run("devices", "mnist")[2] == "GPUs: free: a 1 of 8 nvidia.com/gpu\n"


def test_devices_with_a_silent_task(run: Run, backend: FakeBackend) -> None:
    backend.unresponsive = {Task("worker", 1)}
    assert run("devices", "mnist") == (
        3,
        "TASK      DEVICE  MEMORY  DESCRIPTION\nworker/0  CPU:0   -\n",
        "error: chief/0 does not answer: Connection refused; worker/1 does not answer: Connection refused\n",
    )


def test_devices_as_json(run: Run, backend: FakeBackend) -> None:
    backend.unresponsive = {Task("worker", 1)}
    code, out, _ = run("devices", "mnist", "-o", "json")
    assert code == 3
    assert json.loads(out)[1:] == [
        {
            "task": "worker/0",
            "job": "worker",
            "index": 0,
            "error": "",
            "devices": [
                {
                    "name": "/job:worker/replica:0/task:0/device:CPU:0",
                    "kind": "CPU",
                    "memory": None,
                    "description": "",
                }
            ],
        },
        {
            "task": "worker/1",
            "job": "worker",
            "index": 1,
            "error": "worker/1 does not answer: Connection refused",
            "devices": [],
        },
    ]


def test_lines_of_several_tasks_start_with_the_task(run: Run, backend: FakeBackend) -> None:
    assert run("logs", "mnist") == (
        0,
        "chief/0  | chief/0 listens\nworker/0 | worker/0 listens\nworker/1 | worker/1 listens\n",
        "",
    )


def test_logs_of_one_task_are_unchanged(run: Run, backend: FakeBackend) -> None:
    assert run("logs", "-f", "--tail", "10", "mnist", "/job:worker/task:1") == (0, "worker/1 listens\n", "")
    assert backend.calls == ["logs mnist worker/1 follow=True tail=10"]


def test_logs_from_before_a_restart(run: Run, backend: FakeBackend) -> None:
    assert run("logs", "--previous", "mnist", "worker/1") == (0, "", "no output from before a restart\n")
    assert backend.calls == ["logs mnist worker/1 follow=False tail=None previous=True"]
    assert run("logs", "--previous", "--follow", "mnist") == (
        2, "", "error: --previous can't be combined with --follow: a run that has ended writes nothing more\n",
    )  # fmt: skip


@pytest.mark.parametrize("dashes", [["--"], []])
def test_exec(run: Run, backend: FakeBackend, dashes: list[str]) -> None:
    backend.exit_code = 7
    assert run("exec", "mnist", "worker/1", *dashes, "ls", "-l", "--local") == (7, "", "")
    assert backend.calls == ["execute mnist worker/1 ls -l --local"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["worker/7", "ls"], 'error: there is no task "worker/7"; there are chief/0, worker/0 to worker/1\n'),
        (["worker/1"], "error: Missing argument 'COMMAND'.\n  = help: tfk8s exec --help\n"),
    ],
)
def test_bad_exec(run: Run, backend: FakeBackend, arguments: list[str], error: str) -> None:
    code, out, err = run("exec", "mnist", *arguments)
    assert (code, out, err.startswith(error), backend.calls) == (2, "", True, [])


def test_logs_of_tasks_that_wrote_nothing(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "logs", lambda *_, **__: iter(()))
    assert run("logs", "mnist") == (0, "", "no output; tfk8s status --local mnist shows what runs\n")


def test_logs_of_a_job(run: Run, backend: FakeBackend) -> None:
    assert run("logs", "mnist", "worker")[1] == "worker/0 | worker/0 listens\nworker/1 | worker/1 listens\n"


# ---- how things are written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (312, "5m12s"), (7200, "2h"), (7260, "2h1m"), (90061, "1d1h"), (-5, "0s")],
)
def test_ages(monkeypatch: pytest.MonkeyPatch, seconds: float, text: str) -> None:
    monkeypatch.setattr(output.time, "time", lambda: CREATED + seconds)
    assert output.age(CREATED) == text


def test_no_age() -> None:
    assert (output.age(None), output.moment(None)) == ("", None)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1000, "1000"), (268435456, "256Mi"), (15_000_000_000, "13.97Gi"), (1 << 42, "4Ti")]
)
def test_memory(size: int, text: str) -> None:
    assert output.memory(size) == text


def test_empty_table() -> None:
    assert output.table(("A", "LONG"), []) == "A  LONG"


# ---- on a terminal -------------------------------------------------------------------------------------------------


def cluster(*phases: Phase) -> ClusterStatus:
    tasks = tuple(
        TaskStatus(task=Task("worker", i), phase=phase, address=f"localhost:{2222 + i}", since=CREATED)
        for i, phase in enumerate(phases)
    )
    return ClusterStatus(
        name="big", backend="local", location="", target="grpc://localhost:2222", master=Task("worker", 0), tasks=tasks
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(output.time, "time", lambda: CREATED + 5)
    return Terminal()


def test_a_panel_has_colours(terminal: Terminal) -> None:
    assert start_progress.panel_text(cluster(Phase.READY, Phase.FAILED), 24, terminal) == (
        "big: 1 of 2 tasks ready\n"
        "TASK      PHASE   ADDRESS         WHERE  RESTARTS  AGE  REASON\n"
        "worker/0  \x1b[32mReady \x1b[0m  localhost:2222  -      0         5s\n"
        "worker/1  \x1b[31mFailed\x1b[0m  localhost:2223  -      0         5s"
    )


def test_on_a_terminal_that_can_move_no_cursor_each_change_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with start_progress.Progress() as shown:
        shown.update(cluster(Phase.PENDING))
        shown.update(cluster(Phase.READY))
    assert capsys.readouterr().err == "worker/0  Pending\nworker/0  Ready\n"


def test_a_panel_of_many_tasks_leaves_out_those_that_are_ready(terminal: Terminal) -> None:
    terminal.isatty = lambda: False  # type: ignore[method-assign]
    status = cluster(*[Phase.READY] * 50, *[Phase.PENDING] * 5)
    assert start_progress.panel_text(status, 8, terminal) == (
        "big: 50 of 55 tasks ready\n"
        "TASK       PHASE    ADDRESS         WHERE  RESTARTS  AGE  REASON\n"
        "worker/50  Pending  localhost:2272  -      0         5s\n"
        "worker/51  Pending  localhost:2273  -      0         5s\n"
        "worker/52  Pending  localhost:2274  -      0         5s\n"
        "worker/53  Pending  localhost:2275  -      0         5s\n"
        "and 1 more"
    )
    assert start_progress.panel_text(cluster(*[Phase.READY] * 50), 8, terminal) == "big: 50 of 50 tasks ready"


def test_panel_changes_in_place_and_disappears(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    panel = start_progress.Panel(terminal, transient=True)
    panel.update(cluster(Phase.STARTING))
    panel.update(cluster(Phase.READY))
    panel.close()
    panel.close()
    shown = terminal.getvalue()
    assert "big: 0 of 1 tasks ready" in shown
    assert "big: 1 of 1 tasks ready" in shown
    assert shown.endswith("\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K")  # the cursor is back, the panel gone


def test_cp(run: Run, backend: FakeBackend) -> None:
    assert run("cp", "mnist", "worker/1:/ckpt/model", "model") == (0, "", "")
    assert backend.calls == ["fetch mnist worker/1 /ckpt/model:model"]
    code, _, err = run("cp", "mnist", "worker/1:none", "model")
    assert (code, err) == (1, 'error: "none" was not copied\n')


def test_a_cluster_whose_tasks_are_gone_is_not_ready(run: Run, backend: FakeBackend) -> None:
    backend.statuses["mnist"] = dataclasses.replace(backend.statuses["mnist"], tasks=())
    assert "mnist  Unknown  0/0" in run("ls")[1]
