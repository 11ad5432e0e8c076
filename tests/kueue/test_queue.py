"""Clusters in a queue of a real Kueue: admitted as a whole, taken away as a whole, and back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from observed import WAIT, runs
from team import Team, cluster, make_job, programs

from tfk8s import concurrency
from tfk8s.core.job_file.mappings import IdleLimits
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.status import Phase
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import InvalidInput

Make = Callable[..., Team]

TRAIN = Path(__file__).with_name("train.py")
TIMES = int(os.environ.get("TFK8S_TEST_TIMES", "3"))


@pytest.mark.parametrize("_", range(TIMES))
def test_two_clusters_that_fit_alone_never_run_in_part(team: Make, _: int) -> None:
    ours = team("500m")
    names = ["a", "b"]
    concurrency.map_parallel(ours.backend.apply, [cluster(name) for name in names], 2)
    seen: list[set[str]] = []

    def one_runs() -> str | None:
        pods = ours.pods()
        seen.append({name[0] for name, pod in pods.items() if "schedulingGates" not in pod["spec"]})
        return next((name for name in names if runs(ours.backend.observe(name))), None)

    ours.until("a", lambda _: one_runs())
    first = one_runs()
    assert first
    (second,) = {*names} - {first}
    reason = ours.until_said(second, "insufficient unused quota for cpu")
    assert reason.startswith('queue "gold" has not admitted it: couldn\'t assign flavors to pod set ')
    assert not any(len(names) > 1 for names in seen)
    assert {len(workload["spec"]["podSets"]) for workload in ours.workloads().values()} == {2}
    ours.backend.delete(first)
    ours.until_ready(second)


def test_place_in_the_queue(team: Make) -> None:
    ours = team("300m")
    for name in ("a", "b", "c"):
        ours.backend.apply(programs(name))
        ours.until(name, lambda found: "quota" in found.tasks[0].reason if found.name != "a" else runs(found))
    assert "place" not in ours.until_said("b", "quota")
    assert ours.until_said("c", "place 2").endswith("; place 2 in the queue, behind b")


def test_a_replaced_pod_stays_in_the_group(team: Make, client: Any) -> None:
    ours = team("300m")
    ours.backend.apply(cluster("a"))
    ours.until_ready("a")
    before = ours.pods()["a-worker-0"]["metadata"]["uid"]
    workload = ours.workloads()["a"]["metadata"]["uid"]
    client.send("DELETE", f"/api/v1/namespaces/{ours.namespace}/pods/a-worker-0")
    ours.until("a", lambda found: runs(found) and ours.pods()["a-worker-0"]["metadata"]["uid"] != before)
    assert ours.workloads()["a"]["metadata"]["uid"] == workload


def test_servers_and_programs_are_one_group(team: Make) -> None:
    ours = team("300m")
    ours.backend.apply(cluster("a", make_job("ps"), make_job("worker", 2, program=Program(("sleep", "1000")))))
    ours.until_ready("a")
    (workload,) = ours.workloads().values()
    assert {part["name"]: part["count"] for part in workload["spec"]["podSets"]} == {"ps": 1, "worker": 2}


def high(client: Any) -> str:
    """Return the name of a PriorityClass above the default, which is made."""
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.request("POST", path, body={**made, "metadata": {"name": "tfk8s-high"}})
    return "tfk8s-high"


def test_a_preempted_cluster_says_so_and_comes_back(team: Make, client: Any) -> None:
    ours = team("300m", preemption={"withinClusterQueue": "LowerPriority"})
    ours.backend.apply(programs("low", run=RunPolicy(max_restarts=0)))
    ours.until_ready("low")
    ours.backend.apply(programs("high", tasks=2, priority_class=high(client)))
    ours.until_ready("high")
    reason = ours.until_said("low", "it was evicted (Preempted): Preempted to accommodate a workload")
    assert reason.startswith('queue "gold" has not admitted it')
    ours.backend.delete("high")
    assert all(not task.restarts for task in ours.until_ready("low").tasks)


def test_training_that_is_preempted_ends_with_the_same_loss(team: Make, client: Any) -> None:
    weight = 0.0
    for _ in range(150):
        weight += 0.02 * (3 - weight)
    ours = team("100m", preemption={"withinClusterQueue": "LowerPriority"})
    ours.make_claim("state")
    volumes = (Volume(path="/data", claim="state"),)
    ours.backend.apply(programs("low", "python3", "-c", TRAIN.read_text(), tasks=1, volumes=volumes))

    def log() -> str:
        return "".join(client.text(f"/api/v1/namespaces/{ours.namespace}/pods/{pod}/log") for pod in ours.pods("low-"))

    ours.until("low", lambda found: runs(found) and "step 30\n" in log())
    ours.backend.apply(programs("high", tasks=1, priority_class=high(client)))
    ours.until_ready("high")
    ours.until_said("low", "it was evicted (Preempted)")
    ours.backend.delete("high")
    ours.until("low", lambda found: found.tasks[0].phase is Phase.SUCCEEDED)
    said = log()
    assert f"loss {(3 - weight) ** 2!r} after step 150\n" in said
    assert "begins after step 0\n" not in said


def test_a_cohort_lends_what_a_queue_has_not(team: Make) -> None:
    cohort = {"cohortName": f"tfk8s-{os.getpid()}"}
    lender, ours = team("300m", **cohort), team("0", **cohort)
    ours.backend.apply(programs("a"))
    ours.until_ready("a")
    lender.backend.apply(programs("b"))
    assert "insufficient unused quota" in lender.until_said("b", "quota")


def test_a_queue_that_is_stopped(team: Make) -> None:
    ours = team("300m", stopPolicy="Hold")
    ours.backend.apply(programs("a"))
    assert "is inactive" in ours.until_said("a", "inactive")
    ours.set_queue("300m", stopPolicy="None")
    ours.until_ready("a")
    ours.set_queue("300m", stopPolicy="HoldAndDrain")
    ours.until_said("a", "it was evicted (ClusterQueueStopped)")
    ours.set_queue("300m", stopPolicy="None")
    ours.until_ready("a")


def test_quota_comes_back_when_all_programs_have_ended(team: Make) -> None:
    ours = team("300m")
    ours.backend.apply(programs("a", "true"))
    ours.until("a", lambda found: all(task.phase is Phase.SUCCEEDED for task in found.tasks))
    ours.backend.apply(programs("b"))
    ours.until_ready("b")


def test_limits_are_kept_with_a_full_quota(team: Make) -> None:
    ours = team("300m")
    ours.backend.apply(cluster("a", max_duration=40))
    ours.until_limits_make_room(programs("b"), "quota")


def test_scripts_wait_in_the_queue_by_their_own(team: Make, tmp_path: Path) -> None:
    ours = team("320m")
    ours.backend.apply(cluster("a"))
    ours.until_ready("a")
    file = tmp_path / "script.py"
    file.write_text("print(42)\n")
    submit = [sys.executable, "-m", "tfk8s", "submit", "--namespace", ours.namespace]
    with subprocess.Popen([*submit, "a", str(file)], stdout=subprocess.PIPE, text=True) as warm:
        detached = [*submit, "--fresh", "--detach", "a", str(file)]
        script = subprocess.run(detached, stdout=subprocess.PIPE, text=True, check=True, timeout=WAIT).stdout.strip()
        words = ("insufficient unused quota", "place 2 in the queue, behind a-")
        ours.until("a", lambda found: all(any(word in one.reason for one in found.scripts) for word in words))
        ours.set_queue("400m")
        assert warm.communicate(timeout=WAIT)[0] == "42\n"
    ours.until("a", lambda found: {one.name: one.exit_code for one in found.scripts}[script] == 0)


def test_what_kueue_has_admitted_can_not_change(team: Make) -> None:
    ours = team("500m")
    ours.backend.apply(cluster("a"))
    ours.until_ready("a")
    with pytest.raises(InvalidInput, match="can't be scaled in queue"):
        ours.backend.scale("a", {"worker": 3})
    with pytest.raises(InvalidInput, match="can't change while it is in a queue"):
        ours.backend.apply(cluster("a", make_job("ps"), make_job("worker", 3)))
    ours.backend.apply(cluster("a", env={"CHANGED": "yes"}))
    ours.until_ready("a")


@pytest.mark.parametrize("words", [("sleep", "1000"), ("true",)], ids=["runs", "ended"])
def test_a_suspended_cluster_gives_its_quota_back_and_waits_again(team: Make, words: tuple[str, ...]) -> None:
    ours = team("200m")
    ended = words == ("true",)
    ours.backend.apply(cluster("a", make_job("ps"), make_job("worker", program=Program(words))))
    ours.until("a", lambda found: runs(found) or (ended and found.tasks[1].phase is Phase.SUCCEEDED))
    ours.backend.suspending.suspend("a", "jo")
    ours.backend.apply(programs("b", tasks=2))
    ours.until_ready("b")
    assert ours.backend.suspending.resume("a")
    ours.until_said("a", "insufficient unused quota", "ps")
    ours.backend.delete("b")
    ours.until("a", lambda found: all(task.is_up for task in found.tasks))


def test_an_idle_cluster_gives_its_quota_back_though_a_program_has_ended(team: Make) -> None:
    ours = team("200m")
    program = make_job("worker", program=Program(("true",)))
    ours.backend.apply(cluster("a", make_job("ps"), program, idle=IdleLimits(suspend=10)))
    ours.until("a", lambda found: found.suspended)
    ours.backend.apply(programs("b", tasks=2))
    ours.until_ready("b")
