"""Clusters from their StatefulSets; the status of their tasks is in test_informer.py and tests/faults."""

from __future__ import annotations

from fakes.stateful_sets import JOB_FILE, stateful_sets
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.spec import Job, Task


def test_each_stateful_set_describes_the_whole_cluster() -> None:
    for stateful_set in stateful_sets():
        cluster = deployed.describe([stateful_set])
        assert (cluster.name, cluster.namespace, cluster.master) == ("demo", "ns", Task("chief", 0))
        assert list(cluster.jobs) == [job.name for job in JOB_FILE.jobs]
        assert cluster.target == "grpc://demo-chief-0.demo.ns.svc:2222"
        assert cluster.address(Task("My_ps", 1)).endswith("-1.demo.ns.svc:2300")
    assert deployed.describe(stateful_sets()).tasks == list(JOB_FILE)
    without_ps = deployed.describe(stateful_sets()[:1])
    assert without_ps.workload("My_ps") is None
    assert without_ps.tasks[-1] == Task("My_ps", 0)


def test_the_service_of_tf_data_is_known_from_the_objects() -> None:
    jobs = (Job(name="worker"), Job(name="input", kind="data", tasks=2, port=2300))
    rendered = render.objects(job_file("demo", *jobs, image="tf:1"), "ns")
    cluster = deployed.describe([item for item in rendered if item["kind"] == "StatefulSet"])
    assert cluster.data_service == "grpc://demo-input-0.demo.ns.svc:2300"
    assert {job: cluster.is_data(job) for job in cluster.jobs} == {"worker": False, "input": True}
    assert cluster.has_servers
