from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest

from tfk8s.backends.local import capacity
from tfk8s.backends.local.isolation import Isolation, Kind
from tfk8s.backends.local.loopback.ports import Ports
from tfk8s.backends.local.record import Record, make_record, relocate, resize
from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.core.job_file.mappings import Destination, EnvSource, Network, Security, Source, Topology
from tfk8s.core.plan import fields
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.storage.volumes import Volume

JOB_FILE = JobFile(
    name="a", master="chief", image="tf:1", env={"A": "1", "B": EnvSource(secret="s", key="k")},
    volumes=(
        Volume(path="/d", size=Quantity.parse("1Gi")),
        Volume(path="/c", claim="c", create=Quantity.parse("2Gi"), access="ReadWriteMany", folder="/here"),
        Volume(path="/b", bucket="gs://models/mnist", read_only=True),
    ),
    jobs=(
        Job(name="chief", cpu=Quantity.parse("500m"), tolerations=({"key": "a", "tolerationSeconds": 5},)),
        Job(name="p", shm=Quantity.parse("1Gi"), topology=Topology(pack="zone"), pod={"c": {"d": 1}}),
        Job(name="ps", tasks=2, preload=("ops",), volumes=(Volume(path="/s", config_map="s"),), labels={"a": "b"}),
        Job(name="w", tasks=2, addresses=("a:1", "b:2")),
    ),
    network=Network(
        allow_from=(Source(namespace="n"),),
        allow_to=(Destination(cidr="10.0.0.0/8", except_=("10.1.0.0/16",), ports=(1, 2)),),
    ),
    security=Security(user=1000), queue="q", ttl=5, max_duration=60, idle=30,
    image_pull_secrets=("login",), pod={"a": [1, "b"]},
    script=ScriptResources(memory=Quantity.parse("4Gi"), gpus=1),
)  # fmt: skip


def test_a_record_survives_json() -> None:
    record = make_record(JOB_FILE, "1d", exposed=False)
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert record.tasks[0].environment.keys() >= {"A"}
    assert "B" not in record.tasks[0].environment  # a task inherits the variable from the environment of `up`
    assert record.variables == {"A": "1", "TFK8S_FOLDERS": '{"/c": "/here"}'}
    assert (record.name, record.target) == ("a", "grpc://localhost:2222")
    assert [str(task.task) for task in record.tasks] == ["chief/0", "p/0", "ps/0", "ps/1", "w/0", "w/1"]


@pytest.mark.parametrize("allow_to", [None, (), (Destination(namespace="n"),)], ids=str)
def test_a_record_tells_absent_destinations_from_none(allow_to: tuple[Destination, ...] | None) -> None:
    record = make_record(dataclasses.replace(JOB_FILE, network=Network(allow_to=allow_to)), "1d", exposed=False)
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))).job_file.network.allow_to == allow_to


def test_task_without_its_gpus_has_a_reason() -> None:
    (task,) = make_record(JobFile(name="a", master="w", jobs=(Job(name="w", gpus=99),)), "1d", exposed=False).tasks
    assert task.note.startswith("asks for 99 GPUs, has ")


def test_job_files_are_compared_by_field() -> None:
    before = dataclasses.replace(JOB_FILE, env={}, jobs=(Job(name="ps", memory=Quantity.parse("1Gi")), Job(name="w")))
    jobs = (Job(name="ps", memory=Quantity.parse("2Gi")), Job(name="chief", tasks=2))
    after = dataclasses.replace(before, jobs=jobs, env={"A": "1"})
    assert list(fields(job_file_to_dict(before), job_file_to_dict(before))) == []
    assert list(map(str, fields(job_file_to_dict(before), job_file_to_dict(after)))) == [
        "env.A: none → 1", "jobs.chief: none → 2 tasks", "jobs.ps.memory: 1Gi → 2Gi", "jobs.w: 1 task → none",
    ]  # fmt: skip


def shared(record: Record) -> Record:
    return dataclasses.replace(record, isolation=Isolation(Kind.LOOPBACK, "no namespace"))


def test_a_cluster_in_a_shared_network_gets_free_ports() -> None:
    program = Program(("train.py",), "/work")
    file = JobFile(name="a", master="w", jobs=(Job(name="w", tasks=3), Job(name="p", program=program)))
    record = shared(make_record(file, "1d", exposed=False))
    with contextlib.closing(Ports()) as own, contextlib.closing(Ports()) as others:
        others.choose({2222: 2222, 2224: 2224})
        moved = relocate(record, own)
    ports = {str(task.task): int(task.address.rpartition(":")[2]) for task in moved.tasks}
    assert ports["w/1"] == 2223
    assert not {2222, 2224} & {*ports.values()}
    assert [task.port for task in moved.tasks] == [2222, 2223, 2224, 2225]
    known = {str(task.port): ports[str(task.task)] for task in moved.tasks}
    assert json.loads(moved.variables["TFK8S_PORTS"]) == known
    assert moved.target == f"grpc://127.0.0.1:{ports['w/0']}"
    environment = moved.tasks[3].environment
    assert json.loads(environment["TFK8S_PORTS"]) == known
    assert json.loads(environment["TF_CONFIG"])["cluster"]["w"] == [f"127.0.0.1:{ports[f'w/{i}']}" for i in range(3)]
    assert "TFK8S_PORTS" not in moved.tasks[0].environment
    assert Record.from_dict(json.loads(json.dumps(moved.to_dict()))) == moved


def test_a_network_of_its_own_without_ipv6_keeps_the_ports() -> None:
    with contextlib.closing(Ports()) as own:
        moved = relocate(make_record(sized(1), "1d", exposed=False), own)
    assert all(task.address.startswith("127.0.0.1:") for task in moved.tasks)
    assert "TFK8S_PORTS" not in moved.variables


def test_new_tasks_get_free_ports_beside_those_that_stay() -> None:
    with contextlib.closing(Ports()) as own, contextlib.closing(Ports()) as others:
        others.choose({2222: 2222})
        before = relocate(shared(make_record(sized(2), "1d", exposed=False)), own)
        after = relocate(resize(before, sized(3)), own, kept={task.task for task in before.tasks})
    stayed = {task: address for task, address in after.addresses.items() if task in before.addresses}
    assert stayed == before.addresses
    assert len({*after.addresses.values()}) == 4
    assert [task.port for task in after.tasks] == [2222, 2223, 2225, 2224]


def sized(workers: int, ps: int = 1, **settings: object) -> JobFile:
    return JobFile(
        name="a", master="w", jobs=(Job(name="w", tasks=workers, gpus=1), Job(name="p", tasks=ps)), **settings
    )


def test_tasks_that_stay_keep_their_addresses_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "gpus", lambda: 3)
    record = make_record(sized(2), "1d", exposed=False)
    more = resize(record, sized(4))
    assert {str(task): address.rpartition(":")[2] for task, address in more.addresses.items()} == {
        "w/0": "2222", "w/1": "2223", "w/2": "2225", "w/3": "2226", "p/0": "2224",
    }  # fmt: skip
    assert more.cluster["w"] == [more.addresses[Task("w", index)] for index in range(4)]
    shown = [task.environment["CUDA_VISIBLE_DEVICES"] for task in more.tasks]
    assert shown == ["0", "1", "2", "-1", "-1"]
    assert more.tasks[3].note == "asks for 1 GPU, has 0 on this machine"
    assert resize(more, sized(2)) == record


def test_only_numbers_of_tasks_change_while_a_cluster_runs() -> None:
    record = make_record(sized(2), "1d", exposed=False)
    assert record.is_resized(sized(3, ps=2))
    assert not record.is_resized(sized(2))
    assert not record.is_resized(sized(3, port=3000))
    assert not dataclasses.replace(record, elastic=False).is_resized(sized(3))
    program = JobFile(name="a", master="w", jobs=(Job(name="w", program=Program(("sh",), "/")),))
    assert (record.elastic, make_record(program, "1d", exposed=False).elastic) == (True, False)
