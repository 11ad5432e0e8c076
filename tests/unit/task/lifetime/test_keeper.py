"""The program of a cluster's own Job, with a pretended API server and clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest

from tfk8s.core.lifetime import RENEWED, Limits, RemovableObject, disruption_budgets, removable_objects
from tfk8s.task.lifetime.budgets import Budgets
from tfk8s.task.lifetime.keeper import Keeper
from tfk8s.task.lifetime.last_use import youngest_client
from tfk8s.task.lifetime.object_server import Answer, ApiFailure, NoAnswer, TokenRefused

OBJECTS = removable_objects("demo", ["chief", "My_ps"])
CREATED = 1_700_000_000.0


class PretendedCluster:
    """A cluster whose clock is moved by sleeps, and whose API server's clock is another one."""

    def __init__(self) -> None:
        self.seconds = 100.0  # since the boot; the cluster was created 60 s ago
        self.uids = {item: f"uid of {item.name}" for item in OBJECTS}
        self.log: list[str] = []
        self.failures: list[Exception] = []
        self.last_use = -math.inf
        self.on_ask: Callable[[], object] = lambda: None
        self.refuses_token = False
        self.renewals: list[float] = []  # times

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def ask(self) -> float:
        self.on_ask()
        return self.seconds - self.last_use

    def get(self, item: RemovableObject) -> Answer:
        if self.refuses_token:
            self.refuses_token = self.seconds < 1000
            raise TokenRefused("Unauthorized")
        if self.failures:
            raise self.failures.pop()
        now = CREATED + 60 + self.seconds - 100
        if item not in self.uids:
            return Answer(None, now)
        if item.resource == "serviceaccounts":
            return Answer(self.account(item), now)
        created = datetime.fromtimestamp(CREATED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Answer({"metadata": {"uid": self.uids[item], "creationTimestamp": created}}, now)

    def account(self, item: RemovableObject) -> dict[str, dict[str, object]]:
        """Return the ServiceAccount, whose lease is renewed as `renewals` says."""
        done = [second for second in self.renewals if second <= self.seconds]
        annotations = {"annotations": {RENEWED: f"at {done[-1]:g}"}} if done else {}
        return {"metadata": {"uid": self.uids[item], **annotations}}

    def delete(self, item: RemovableObject, uid: str, propagation: str) -> None:
        assert uid == self.uids.pop(item)
        self.log.append(f"{item.resource}/{item.name} {propagation}")

    def patch(self, item: RemovableObject, change: dict[str, dict[str, object]]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.log.append(f"{self.seconds:g}: {item.name} {change['spec']['maxUnavailable']}")

    def keep(self, limits: Limits, objects: Sequence[RemovableObject] = OBJECTS, drained: Sequence[str] = ()) -> str:
        budgets = Budgets(self, disruption_budgets("demo", drained))  # type: ignore[arg-type]
        keeper = Keeper(self, objects, limits, budgets, None, self.ask, self.clock, self.sleep)  # type: ignore[arg-type]
        return keeper.run()


@pytest.fixture
def cluster() -> PretendedCluster:
    return PretendedCluster()


def test_the_duration_counts_from_the_creation(cluster: PretendedCluster) -> None:
    assert cluster.keep(Limits(300, None)) == "5m after its first `up` (max_duration)"
    assert cluster.seconds == 100 + 300 - 60
    assert cluster.log == [
        "statefulsets/demo-chief Foreground",
        f"statefulsets/{OBJECTS[1].name} Foreground",
        "poddisruptionbudgets/demo-chief Background",
        f"poddisruptionbudgets/{OBJECTS[1].name} Background",
        "services/demo-master Background",
        "services/demo Background",
        "networkpolicies/demo Background",
        "configmaps/demo Background",
        "networkpolicies/demo-lifetime Background",
        "serviceaccounts/demo-lifetime Background",
    ]


@pytest.mark.parametrize(("grace", "limit"), [({}, 120), ({"terminationGracePeriodSeconds": 603}, 723)])
def test_the_other_objects_stay_while_programs_save(
    cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch, grace: dict[str, int], limit: int
) -> None:
    get, stuck = cluster.get, "uid of a Job whose pods never end"
    objects = removable_objects("demo", [], ["worker"])
    cluster.uids = {item: f"uid of {item.name}" for item in objects}
    job = next(item for item in objects if item.resource == "jobs")

    def with_spec(item: RemovableObject) -> Answer:
        body, now = get(item)
        if item == job:
            body = {"metadata": {"uid": cluster.uids.get(item, stuck)}, "spec": {"template": {"spec": grace}}}
        elif item.resource == "configmaps" and body and job not in cluster.uids:
            assert cluster.seconds - 340 <= limit
        return Answer(body, now)

    monkeypatch.setattr(cluster, "get", with_spec)
    assert cluster.keep(Limits(300, None), objects)
    assert cluster.seconds == 340 + limit


def test_a_use_postpones_the_end(cluster: PretendedCluster) -> None:
    cluster.last_use = 130  # as seen by the tasks, before the Job's pod was restarted or after
    assert cluster.keep(Limits(None, 50)) == "after 50s without a session and a script (idle)"
    assert cluster.seconds == 180


def test_budgets_are_open_while_nobody_uses_the_cluster(cluster: PretendedCluster) -> None:
    def use() -> None:
        if 140 <= cluster.seconds < 162:
            cluster.last_use = cluster.seconds
        if cluster.seconds == 140:
            cluster.failures = [ApiFailure("forbidden")]  # the first attempt to close
        if cluster.seconds >= 200:
            cluster.uids.clear()

    cluster.on_ask = use
    assert cluster.keep(Limits(240, None), drained=["chief"]) == "by somebody else"
    assert cluster.log == [
        "100: demo-chief 0", "130: demo-chief 100%", "145: demo-chief 0", "190: demo-chief 100%",
    ]  # fmt: skip


GONE = "after its `run` had been gone for 15m (lease)"


def test_renewals_keep_a_cluster_and_the_lease_ends_after_the_last(cluster: PretendedCluster) -> None:
    cluster.renewals = [101 + 60 * number for number in range(100)]
    assert cluster.keep(Limits(None, None, 900)) == GONE
    assert cluster.renewals[-1] + 900 <= cluster.seconds <= cluster.renewals[-1] + 900 + 4 * 60
    assert cluster.uids == {}


def test_a_run_that_never_renews_has_a_lease_too(cluster: PretendedCluster) -> None:
    assert cluster.keep(Limits(None, None, 900)) == GONE
    assert cluster.seconds == 100 + 900 + 2 * 60


def test_a_machine_may_sleep_for_the_whole_lease(cluster: PretendedCluster) -> None:
    cluster.renewals = [160, 160 + 59 + 900 + 59]  # asleep just before a renewal was due
    assert cluster.keep(Limits(1500, None, 900)) == "25m after its first `up` (max_duration)"


def test_no_lease_ends_while_the_api_server_does_not_answer(
    cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, account = cluster.get, next(item for item in OBJECTS if item.resource == "serviceaccounts")

    def fail(item: RemovableObject) -> Answer:
        if item == account and 1000 < cluster.seconds < 5000:
            raise NoAnswer("timed out")
        return get(item)

    monkeypatch.setattr(cluster, "get", fail)
    cluster.renewals = [500, 5500]
    assert cluster.keep(Limits(None, None, 900)) == GONE
    assert cluster.seconds > 5500 + 900


def test_a_cluster_without_a_lease_needs_no_renewal(cluster: PretendedCluster) -> None:
    assert cluster.keep(Limits(7200, None)) == "2h after its first `up` (max_duration)"


def test_nothing_known_is_no_idleness(cluster: PretendedCluster) -> None:
    def nothing_known() -> None:
        cluster.last_use = cluster.seconds

    cluster.on_ask = nothing_known
    assert cluster.keep(Limits(1000, 10)) == "1000s after its first `up` (max_duration)"


@pytest.mark.parametrize("kind", ["Complete", "Suspended"])
def test_idleness_begins_when_programs_have_ended(
    cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    get = cluster.get

    def with_status(item: RemovableObject) -> Answer:
        body, now = get(item)
        if body and cluster.seconds >= 200:
            body["status"] = {"conditions": [{"type": kind, "status": "True"}]}
            if kind == "Suspended":  # as `tfk8s wait` ends programs
                body["metadata"]["annotations"] = {"tfk8s.dev/run-end": "Failed"}
        return Answer(body, now)

    monkeypatch.setattr(cluster, "get", with_status)
    objects = removable_objects("demo", [], ["worker"])
    cluster.uids = {item: f"uid of {item.name}" for item in objects}
    assert cluster.keep(Limits(None, 50), objects) == "after 50s without a session and a script (idle)"
    assert cluster.seconds >= 245
    assert cluster.log[0] == "jobs/demo-worker Foreground"


def test_a_cluster_that_was_made_anew_begins_anew(cluster: PretendedCluster) -> None:
    config = next(item for item in OBJECTS if item.resource == "configmaps")

    def replace() -> None:
        if cluster.seconds >= 110:
            cluster.uids[config] = "uid of another"

    cluster.on_ask = replace
    assert cluster.keep(Limits(None, 20)) == "after 20s without a session and a script (idle)"
    assert cluster.seconds == 140


def test_failed_requests_are_repeated(cluster: PretendedCluster) -> None:
    cluster.failures = [ApiFailure("forbidden"), NoAnswer("timed out")]
    assert cluster.keep(Limits(60, None))
    assert cluster.uids == {}


def test_the_token_ends_with_the_serviceaccount(cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = cluster.delete

    def lose_last_answer(item: RemovableObject, uid: str, propagation: str) -> None:
        delete(item, uid, propagation)
        if not cluster.uids:
            cluster.refuses_token = True
            raise NoAnswer("timed out")

    monkeypatch.setattr(cluster, "delete", lose_last_answer)
    assert cluster.keep(Limits(60, None))
    assert cluster.seconds == 110  # one attempt more


def test_a_token_refused_before_that_is_no_end(cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    delete, refusals = cluster.delete, [TokenRefused("Unauthorized")]

    def refuse_once(item: RemovableObject, uid: str, propagation: str) -> None:
        if refusals:
            raise refusals.pop()
        delete(item, uid, propagation)

    monkeypatch.setattr(cluster, "delete", refuse_once)
    assert cluster.keep(Limits(60, None))
    assert cluster.uids == {}


def test_the_program_ends_with_the_cluster(cluster: PretendedCluster) -> None:
    cluster.uids.clear()
    assert cluster.keep(Limits(300, None)) == "by somebody else"
    assert cluster.log == []


CONNECTIONS = [
    ({}, 0),
    ({"10.0.0.1": None}, 0),  # no task answers
    ({"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.3": None}, math.inf),
    ({"10.0.0.1": {"10.0.0.2": 0}, "10.0.0.2": {"10.0.0.1": 5}}, math.inf),  # tasks
    ({"10.0.0.1": {"10.0.0.2": 0, "10.0.0.3": 7}, "10.0.0.2": {}, "10.0.0.3": None}, 7),  # a script's pod
    ({"10.0.0.1": {"127.0.0.1": 9}, "10.0.0.2": {"10.0.0.3": 20}}, 9),  # a forward through the API server
]


def test_connections_of_tasks_are_no_use() -> None:
    for answers, age in CONNECTIONS:
        assert youngest_client(answers) == age, answers
