"""Commands that make, change and remove clusters, and run scripts in them."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.command_line import Run
from job_files import job_file
from traced import training_step

import tfk8s
from tfk8s import api, polling
from tfk8s.cli import scripts
from tfk8s.cluster import gpus
from tfk8s.core.history.shared import RecordStatus
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import Phase, ScriptPhase, ScriptStatus
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable
from tfk8s.features.timeline import steps
from tfk8s.testing import FakeBackend, change

pytest_plugins = ("fakes.command_line",)

pytestmark = pytest.mark.usefixtures("folder")


# ---- up, restart, down ---------------------------------------------------------------------------------------------


def test_up_tells_each_change_and_then_the_result(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.STARTING
    backend.updates = [
        lambda status: status,  # whether it is there: it isn't, so that this look stays
        change("chief/0", phase=Phase.READY),
        change("worker/1", phase=Phase.FAILED, reason="killed by SIGKILL", runs_on=""),
        change("worker/1", phase=Phase.READY, reason="", runs_on="pid 104"),
        change("worker/0", phase=Phase.READY),
    ]
    assert run("up", "new.yaml") == (
        0,
        'cluster "new" is up\n',
        (
            "chief/0   Starting  pid 101\n"
            "worker/0  Starting  pid 102\n"
            "worker/1  Starting  pid 103\n"
            "chief/0   Ready     pid 101\n"
            "worker/1  Failed    killed by SIGKILL\n"
            "worker/1  Ready     pid 104\n"
            "worker/0  Ready     pid 102\n"
            "run a script in it: tfk8s submit --local new SCRIPT\n"
        ),
    )


def test_second_up_changes_nothing(run: Run, backend: FakeBackend) -> None:
    assert run("up", "mnist.yaml") == (
        0,
        'cluster "mnist" is up: nothing changed\n',
        "run a script in it: tfk8s submit --local mnist SCRIPT\n",
    )


def test_up_says_where_the_record_is(run: Run, backend: FakeBackend) -> None:
    record = RecordStatus("bucket s3://team/past", "PUT s3://team/past/x: 503 SlowDown")
    backend.updates = [lambda status: replace(status, record=record)] * 9
    words = "history: bucket s3://team/past; it is not written: PUT s3://team/past/x: 503 SlowDown\n"
    assert words in run("up", "mnist.yaml")[2]


def test_up_without_waiting(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.PENDING
    assert run("up", "--no-wait", "new.yaml")[:2] == (0, 'cluster "new" is started\n')


def test_failed_up_leaves_the_cluster(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.PENDING
    code, out, err = run("up", "--timeout", "0", "new.yaml")
    assert (code, out) == (124, "")
    error, advice = err.splitlines()[-2:]
    assert error == 'error: waited 0 s for cluster "new" to be ready: chief/0, worker/0 to worker/1 are pending'
    assert advice.startswith("  = help: a cluster that starts already continues; `tfk8s up` waits for the cluster")
    assert "new" in backend.statuses


def test_up_of_a_bad_file_starts_nothing(run: Run, backend: FakeBackend, folder: Path) -> None:
    (folder / "bad.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: bad\njobs: {my-job: 2}\n")
    code, out, err = run("up", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("error[bad-job-name]: ")
    assert backend.calls == []


def test_up_refuses_addresses(run: Run, folder: Path) -> None:
    (folder / "there.yaml").write_text('apiVersion: tfk8s.dev/v1\nname: there\njobs: {worker: ["127.0.0.1:1"]}\n')
    assert run("up", "--local", "there.yaml") == (
        2,
        "",
        (
            'error: tfk8s can\'t start the servers of "there": its job file gives their addresses, so they '
            "were started elsewhere\n"
            "  = help: `tfk8s status`, `devices`, `connect` and `submit` work, each with the job file's path\n"
        ),
    )


def test_down_saves_the_logs_first(run: Run, backend: FakeBackend, tmp_path: Path) -> None:
    script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.SUCCEEDED, command="a.py")
    local = ScriptStatus(name="pid 7", phase=ScriptPhase.RUNNING, command="b.py")
    backend.statuses["mnist"] = replace(backend.statuses["mnist"], scripts=(script, local))
    backend.restart("mnist", Task("worker", 1))
    (tmp_path / "file").touch()
    assert run("down", "--save-logs", str(tmp_path / "file"), "mnist") == (
        1, "",
        (
            f'error: logs can\'t be written to "{tmp_path}/file": File exists; nothing was removed\n'
            "  = help: name another folder, or leave out --save-logs\n"
        ),
    )  # fmt: skip
    assert "mnist" in backend.statuses
    assert run("down", "--save-logs", str(tmp_path / "logs/new"), "mnist") == (0, 'cluster "mnist" is down\n', "")
    assert {path.name: path.read_text() for path in (tmp_path / "logs/new").iterdir()} == {
        "chief-0.log": "chief/0 listens\n", "worker-0.log": "worker/0 listens\n", "worker-1.log": "worker/1 listens\n",
        "worker-1.previous.log": "worker/1 listens\n", "script-4e9c21.log": "script-4e9c21 runs\n",
    }  # fmt: skip


def test_a_script_that_ends_meanwhile_keeps_no_cluster(
    run: Run, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log(name: str, script: str) -> None:
        raise InvalidInput(f"{script} has ended")

    script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command="a.py")
    backend.statuses["mnist"] = replace(backend.statuses["mnist"], scripts=(script,))
    monkeypatch.setattr(backend, "log", log)
    assert run("down", "--save-logs", str(tmp_path / "logs"), "mnist") == (0, 'cluster "mnist" is down\n', "")


def test_down(run: Run, backend: FakeBackend) -> None:
    assert run("down", "mnist") == (0, 'cluster "mnist" is down\n', "")
    assert run("down", "mnist") == (
        2,
        "",
        'error: there is no cluster "mnist"\n  = help: tfk8s up --local FILE starts one\n',
    )


def test_down_names_the_claims_that_are_kept(run: Run, backend: FakeBackend) -> None:
    volume = Volume(path="/ckpt", claim="ckpt", create=Quantity.parse("1Gi"))
    backend.job_files["mnist"] = replace(backend.job_files["mnist"], volumes=(volume,))
    kept = "kept: claim ckpt; the next `up` finds the data, `down --delete-claims` deletes it\n"
    again = backend.job_files["mnist"]
    assert run("down", "mnist") == (0, 'cluster "mnist" is down\n', kept)
    backend.apply(again)
    assert run("down", "--delete-claims", "mnist") == (0, 'cluster "mnist" is down\n', "")
    assert backend.calls[-1] == "delete mnist and its claims"


def test_restart_of_one_task(run: Run, backend: FakeBackend) -> None:
    backend.updates = [
        lambda status: status,
        change("worker/1", phase=Phase.STARTING, runs_on="pid 104", restarts=1),
        change("worker/1", phase=Phase.READY),
    ]
    assert run("restart", "mnist", "worker/1") == (
        0,
        'restarted worker/1 of cluster "mnist"\n',
        "worker/1  Starting  pid 104\nworker/1  Ready     pid 104\n",
    )
    assert backend.calls == ["restart mnist worker/1"]


def test_restart_of_all(run: Run, backend: FakeBackend) -> None:
    assert run("restart", "--no-wait", "mnist") == (0, 'restarted all tasks of cluster "mnist"\n', "")


def test_restart_of_a_missing_task(run: Run, backend: FakeBackend) -> None:
    assert run("restart", "mnist", "wroker/1") == (
        2,
        "",
        (
            'error: there is no task "wroker/1"; there are chief/0, worker/0 to worker/1\n'
            "  = help: did you mean worker/1?\n"
        ),
    )


# ---- submit --------------------------------------------------------------------------------------------------------


def test_submit_by_name_and_by_file(run: Run, backend: FakeBackend) -> None:
    backend.exit_code = 7
    assert run("submit", "mnist", "train.py", "--steps", "5") == (7, "", "")
    assert run("submit", "--tf1", "mnist.yaml", "--isolate", "--on-master", "train.py", "--help") == (7, "", "")
    assert backend.calls == ["run mnist train.py --steps 5", "run mnist train.py --help tf1 isolate on_master"]


def test_submit_waits_for_the_cluster_with_timeout(run: Run, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", phase=Phase.STARTING), change("worker/1", phase=Phase.READY)]
    assert run("submit", "--timeout", "5s", "mnist", "train.py") == (
        0,
        "",
        "worker/1  Starting  pid 103\nworker/1  Ready     pid 103\n",
    )


def test_submit_detached_prints_the_scripts_name(run: Run, backend: FakeBackend) -> None:
    assert run("submit", "-d", "mnist", "train.py") == (
        0,
        "script-4e9c21\n",
        "follow it: tfk8s logs -f --local mnist script-4e9c21; stop it: tfk8s stop --local mnist script-4e9c21\n",
    )


def test_submit_copies_files(run: Run, backend: FakeBackend) -> None:
    assert run("submit", "--get", "model", "--get", "/tmp/log:log.txt", "mnist", "train.py") == (0, "", "")
    assert backend.calls == ["run mnist train.py get model:model get /tmp/log:log.txt"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--get", "model", "-d"],
            (
                "error: --get can't be combined with --detach: files are copied when the script ends, and nobody waits "
                "for that\n  = help: leave out --detach; or let the script write to a volume of the job file\n"
            ),
        ),
        (
            ["--watch", "-d"],
            "error: --watch can't be combined with --detach: each run ends with this command\n",
        ),
        (
            ["--get", "model:"],
            'error: --get "model:" is not PATH or PATH:LOCAL\n  = help: for example --get model:results\n',
        ),
    ],
)
def test_submit_refuses_files_that_it_can_not_copy(
    run: Run, backend: FakeBackend, options: list[str], error: str
) -> None:
    assert run("submit", *options, "mnist", "train.py") == (2, "", error)
    assert backend.calls == []


def test_submit_writes_a_timeline(run: Run, backend: FakeBackend, tmp_path: Path) -> None:
    def record(script: Script) -> None:
        every, _, path = script.environment["TFK8S_TRACE"].partition(":")
        assert every == "7"
        Path(path).write_text(steps.step_line(training_step()))

    page, trace = tmp_path / "steps.html", tmp_path / "steps.trace.json"
    backend.on_run, backend.exit_code = record, 9
    assert run("submit", "--trace", str(page), "--trace-every", "7", "mnist", "train.py") == (
        9, "", f"1 recorded step is in {page} and {trace}\n",
    )  # fmt: skip
    assert (page.exists(), trace.exists()) == (True, True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--trace", "steps.html", "-d"],
            "error: --trace can't be combined with --detach: the page is written when the script ends\n",
        ),
        (
            ["--trace-every", "5"],
            "error: --trace-every needs --trace\n  = help: for example --trace steps.html --trace-every 10\n",
        ),
    ],
)
def test_submit_refuses_a_timeline_before_anything_starts(
    run: Run, backend: FakeBackend, options: list[str], error: str
) -> None:
    assert run("submit", *options, "mnist", "train.py") == (2, "", error)
    assert backend.calls == []


def test_stop(run: Run, backend: FakeBackend) -> None:
    assert run("stop", "mnist", "script-4e9c21") == (0, 'stopped script-4e9c21 of cluster "mnist"\n', "")
    assert backend.calls == ["stop mnist script-4e9c21"]


def test_a_task_that_is_lost_meanwhile(run: Run, backend: FakeBackend) -> None:
    def lose(_: Script) -> None:
        raise TaskUnreachable("worker/1 was lost: killed by SIGKILL")

    backend.on_run = lose
    assert run("submit", "mnist", "train.py") == (3, "", "error: worker/1 was lost: killed by SIGKILL\n")


@pytest.mark.parametrize(("command", "cluster"), [("submit", "mnist"), ("submit", "new.yaml"), ("run", "new.yaml")])
def test_script_before_the_cluster(run: Run, backend: FakeBackend, command: str, cluster: str) -> None:
    code, output, errors = run(command, "train.py", cluster)
    assert (code, output) == (2, "")
    assert errors == (
        'error: "train.py" is a Python file, and the cluster comes before the script\n'
        f"  = help: write `tfk8s {command} … {cluster} train.py`\n"
    )
    assert backend.calls == []


@pytest.mark.parametrize("command", [["submit", "mnist"], ["run", "new.yaml"]])
def test_missing_script_is_found_first(run: Run, backend: FakeBackend, command: list[str]) -> None:
    assert run(*command, "nope.py") == (2, "", 'error: there is no script "nope.py"\n')
    assert run(*command, ".") == (
        2,
        "",
        'error: "." is a folder, not a script\n  = help: name the Python file in it\n',
    )
    assert backend.calls == []


# ---- run -----------------------------------------------------------------------------------------------------------


def test_run_makes_a_cluster_for_the_script_alone(run: Run, backend: FakeBackend) -> None:
    backend.exit_code = 3
    assert run("run", "new.yaml", "train.py", "a") == (3, "", "")
    assert backend.calls == ["apply new", "run new train.py a", "delete new"]


@pytest.mark.parametrize(("option", "lease"), [([], 900), (["--keep"], None)])
def test_the_cluster_of_a_run_has_a_lease(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, option: list[str], lease: int | None
) -> None:
    monkeypatch.setattr(backend, "name", "kubernetes")
    apply, applied = backend.apply, []
    monkeypatch.setattr(backend, "apply", lambda spec: applied.append(spec.lease) or apply(spec))
    assert run("run", *option, "new.yaml", "train.py")[0] == 0
    assert run("up", "mnist.yaml")[0] in (0, 2)
    assert applied == [lease, None]


def test_run_keeps_the_cluster_with_keep(run: Run, backend: FakeBackend) -> None:
    assert run("run", "--keep", "new.yaml", "train.py") == (0, "", "")
    assert backend.calls == ["apply new", "run new train.py"]


def test_run_leaves_its_cluster_to_the_scripts_of_others(run: Run, backend: FakeBackend) -> None:
    other = ScriptStatus(name="pid 7", phase=ScriptPhase.RUNNING, command="b.py")
    backend.on_run = lambda script: backend.updates.append(lambda status: replace(status, scripts=(other,)))
    kept = 'tfk8s: cluster "new" is kept because other scripts run in it; remove it: tfk8s down --local new\n'
    assert run("run", "new.yaml", "train.py") == (0, "", kept)
    assert "delete new" not in backend.calls


def test_run_warns_of_other_scripts_only_before_a_removal(run: Run, backend: FakeBackend) -> None:
    other = ScriptStatus(name="pid 7", phase=ScriptPhase.RUNNING, command="b.py")
    backend.on_run = lambda script: backend.updates.append(lambda status: replace(status, scripts=(other,)))
    assert run("run", "--keep", "new.yaml", "train.py") == (0, "", "")
    backend.job_files["mnist"] = tfk8s.load("mnist.yaml")
    assert run("run", "mnist.yaml", "train.py")[2] == 'cluster "mnist" already runs: run uses it and keeps it\n'


def test_run_uses_an_existing_cluster(run: Run, backend: FakeBackend) -> None:
    backend.job_files["mnist"] = tfk8s.load("mnist.yaml")
    assert run("run", "mnist.yaml", "train.py") == (
        0,
        "",
        'cluster "mnist" already runs: run uses it and keeps it\n',
    )
    assert backend.calls == ["apply mnist", "run mnist train.py"]


def test_run_reports_changes_of_an_existing_cluster(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "apply", lambda job_file: True)
    note = 'cluster "mnist" was updated to the job file: run uses it and keeps it\n'
    assert run("run", "mnist.yaml", "train.py") == (0, "", note)


def test_run_leaves_a_cluster_of_that_name_but_another_job_file(run: Run, backend: FakeBackend) -> None:
    backend.job_files["mnist"] = job_file("mnist", chief=9)
    assert run("run", "mnist.yaml", "train.py")[0] == 2
    assert "mnist" in backend.statuses


def test_run_in_vain_leaves_nothing(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.PENDING
    assert run("run", "--timeout", "0", "new.yaml", "train.py")[0] == 124
    assert backend.calls == ["apply new", "delete new"]


def test_run_without_the_gpus_of_the_job_file(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "REASON_TIMEOUT", 0.0)
    backend.updates = [change("worker/1", required_gpus=1)]
    error = (
        "error: TensorFlow does not see all GPUs: worker/1 sees 0 of 1: its log shows no reason\n  = help: `tfk8s run "
        "--keep` leaves the cluster and its logs; gpus_optional: true in jobs.worker lets tasks run without GPUs\n"
    )
    assert run("run", "new.yaml", "train.py") == (1, "", error)
    assert backend.calls == ["apply new", "logs new worker/1 follow=False tail=None timestamps=True", "delete new"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
@pytest.mark.parametrize("moment", ["apply", "observe", "run"])
def test_whenever_a_signal_comes_run_leaves_nothing(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, moment: str, number: signal.Signals, code: int
) -> None:
    original = getattr(backend, moment)

    def interrupted(*arguments: object) -> object:
        result = original(*arguments)
        if "new" in backend.statuses:
            os.kill(os.getpid(), number)
        return result

    monkeypatch.setattr(backend, moment, interrupted)
    assert run("run", "new.yaml", "train.py")[0] == code
    assert backend.calls[-1] == "delete new"
    assert list(backend.statuses) == ["mnist"]


@pytest.mark.parametrize(
    ("command", "method", "says"),
    [
        (
            ["up", "new.yaml"],
            "apply",
            "a cluster that starts already continues; `tfk8s up` waits for the cluster, `tfk8s down` removes it",
        ),
        (["restart", "mnist"], "restart", "a restart that has begun continues; `tfk8s status` shows its progress"),
        (
            ["scale", "mnist", "worker=3"],
            "scale",
            "tasks that start or end already continue; `tfk8s status` shows their progress",
        ),
        (["down", "mnist"], "delete", "parts of the cluster may remain; `tfk8s down` again removes them"),
    ],
)
def test_interrupted_command_says_what_remains(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, command: list[str], method: str, says: str
) -> None:
    monkeypatch.setattr(backend, method, lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    code, _, err = run(*command)
    assert (code, err.splitlines()[-1]) == (130, f"interrupted: {says}")


def test_signal_counts_if_its_exception_is_swallowed(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = backend.apply

    def swallowing(spec: JobFile) -> bool:
        with contextlib.suppress(KeyboardInterrupt):  # as C code does that calls Python back
            os.kill(os.getpid(), signal.SIGINT)
        return apply(spec)

    monkeypatch.setattr(backend, "apply", swallowing)
    assert run("run", "new.yaml", "train.py")[0] == 130
    assert backend.calls == ["apply new", "delete new"]


def test_signal_is_repeated_if_python_drops_its_exception(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def apply(_: JobFile) -> bool:
        Deaf()
        for _ in polling.poll(20.0):
            pass
        return True

    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(backend, "apply", apply)
    assert run("up", "new.yaml")[0] == 130
    signal.signal(signal.SIGALRM, before)


def test_a_signal_that_becomes_another_exception_is_no_bug(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapping(name: str) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except SystemExit as error:
            raise ValueError("a schema can't be built") from error

    monkeypatch.setattr(backend, "observe", wrapping)
    assert run("status", "mnist") == (143, "", "")


def test_further_signals_don_t_cut_the_removal_short(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = backend.delete

    def interrupted(name: str) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        delete(name)

    monkeypatch.setattr(backend, "delete", interrupted)
    assert run("run", "new.yaml", "train.py")[0] == 0
    assert list(backend.statuses) == ["mnist"]


# ---- connect -------------------------------------------------------------------------------------------------------


def test_connect_gives_an_address_until_ctrl_c(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(cluster: api.Cluster) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scripts, "until_gone", interrupted)
    code, out, err = run("connect", "mnist")
    assert code == 130
    assert out.startswith("grpc://127.0.0.1:")
    assert err == (
        'forwarding sessions to cluster "mnist", until Ctrl-C\n'
        "the strategies of tf.distribute find no cluster at this address: use a program, or submit the script\n"
    )


def test_connect_ends_with_its_cluster(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "POLL_INTERVAL", 0.001)
    backend.updates = [lambda status: status, lambda status: replace(status, reason="its supervisor is gone")]
    code, _, err = run("connect", "mnist")
    assert (code, err.splitlines()[-1]) == (1, "error: its supervisor is gone")


def test_connect_without_a_way_to_the_tasks(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, task: Task) -> None:
        raise ClusterError(f"you may not reach {task} of {name}")

    monkeypatch.setattr(backend, "dial", refuse)
    for command in (["connect", "mnist"], ["submit", "--here", "mnist", "train.py"]):
        backend.in_pods = True
        assert run(*command) == (1, "", "error: you may not reach chief/0 of mnist\n")


def test_connect_to_a_port_in_use(run: Run, backend: FakeBackend) -> None:
    with api.find("mnist", api.BackendOptions()).forward() as other:
        assert run("connect", "mnist", "--port", str(other.port)) == (
            2,
            "",
            f"error: port {other.port} is in use\n  = help: choose another port, or leave the port out\n",
        )


@pytest.mark.parametrize("option", [("--gpus", "1"), ("-r", "new.yaml")])
def test_options_for_kubernetes_start_nothing_here(run: Run, backend: FakeBackend, option: tuple[str, str]) -> None:
    code, _, err = run("run", *option, "new.yaml", "train.py")
    assert code == 2
    assert " is for Kubernetes: on this machine " in err
    assert backend.calls == []
