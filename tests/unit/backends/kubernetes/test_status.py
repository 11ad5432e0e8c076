"""Clusters from their StatefulSets; the status of their tasks is in test_informer.py and tests/faults."""

from __future__ import annotations

from fakes.stateful_sets import JOB_FILE, stateful_sets

from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.spec import Task


def test_each_stateful_set_describes_the_whole_cluster() -> None:
    for stateful_set in stateful_sets():
        cluster = deployed.describe([stateful_set])
        assert (cluster.name, cluster.namespace, cluster.master) == ("demo", "ns", Task("chief", 0))
        assert cluster.tasks == list(JOB_FILE)
        assert cluster.target == "grpc://demo-chief-0.demo.ns.svc:2222"
        assert cluster.address(Task("My_ps", 1)).endswith("-1.demo.ns.svc:2300")
    assert deployed.describe(stateful_sets()[:1]).workload("My_ps") is None
