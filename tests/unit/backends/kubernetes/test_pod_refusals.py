"""Refusals of the API server, with the key in the job file."""

from __future__ import annotations

import json

from tfk8s import render
from tfk8s.backends.kubernetes import pod_refusals
from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.core.programs import RunPolicy
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput

SERVER = {"name": "server", "env": [{"name": "A", "value": "b"}]}
WORKER = Job(
    name="worker", env={"B": "b"},
    pod={"containers": [{"name": "proxy"}, SERVER], "hostAliases": [{"ip": "x"}], "hostAliasses": []},
)  # fmt: skip
JOB_FILE = JobFile(
    name="demo", image="tf:1", master="worker", jobs=(WORKER, Job(name="ps")),
    pod={"tolerations": "x", "containers": [{"name": "exporter"}]}, run=RunPolicy(success="worker/0"),
)  # fmt: skip
SCHEMA = "failed to create typed patch object (ns/demo-worker; apps/v1, Kind=StatefulSet): .spec.template.spec."
CONVERT = "failed to convert new object (ns/demo-ps; apps/v1, Kind=StatefulSet) to proper version: unable to convert "
CONVERT += "unstructured object to apps/v1, Kind=StatefulSet: quantities must match"


def refusal(code: int, message: str, *fields: tuple[str, str]) -> Exception:
    """Return the error for an answer of the API server."""
    causes = [{"reason": "FieldValueInvalid", "field": field, "message": problem} for field, problem in fields]
    body = {"kind": "Status", "message": message, "details": {"name": "demo-worker", "causes": causes}}
    error = errors.from_response(code, json.dumps(body).encode(), "kind-test")
    return pod_refusals.in_words_of(JOB_FILE, error, render.objects(JOB_FILE))


KEYS = [
    (
        refusal(500, f"{SCHEMA.replace('template.spec.', '')}successPolicy: field not declared in schema"),
        "run.success: worker/0: on Kubernetes before 1.31, one task can't be the success of a run",
    ),
    (
        refusal(500, f"{SCHEMA}hostAliasses: field not declared in schema"),
        "the API server refuses jobs.worker.pod.hostAliasses: there is no such field",
    ),
    (
        refusal(500, f"{SCHEMA}dnsPolicy: expected string, got &{{1}}"),  # of tfk8s, not of `pod`
        (
            "the API server refuses: failed to create typed patch object (ns/demo-worker; apps/v1, "
            "Kind=StatefulSet): .spec.template.spec.dnsPolicy: expected string, got &{1}"
        ),
    ),
    (
        refusal(500, f'{SCHEMA}containers[name="proxy"].imagee: field not declared in schema'),
        "the API server refuses jobs.worker.pod.containers[proxy].imagee: there is no such field",
    ),
    (
        refusal(500, f"{SCHEMA}tolerations: expected list, got &{{x}}"),
        "the API server refuses pod.tolerations: expected list, got &{x}",
    ),
    (refusal(500, CONVERT), "the API server refuses pod: quantities must match"),
    (
        refusal(
            422, "invalid", ("spec.template.spec.containers[2].image", "Required value"),
            ("spec.template.spec.hostAliases[0].ip", "must be a valid IP address"),
            ("spec.template.spec.containers[1].image", "Required value"),
        ),
        ("the API server refuses jobs.worker.pod.containers[proxy].image: Required value; "
        "jobs.worker.pod.hostAliases[0].ip: must be a valid IP address; "
        "pod.containers[exporter].image: Required value"),
    ),
    (
        refusal(422, "invalid", ("spec.template.spec.containers[0].env[10].value", "too long")),
        "the API server refuses jobs.worker.pod.containers[server].env[A].value: too long",
    ),
    (refusal(422, "invalid", ("spec.template.spec.priorityClassName", "no")), "the API server refuses: invalid"),
    (refusal(422, "invalid", ("spec.replicas", "no")), "the API server refuses: invalid"),
]  # fmt: skip


def test_the_key_in_the_job_file_is_named() -> None:
    for error, problem in KEYS:
        assert str(error) == problem, error
        assert isinstance(error, InvalidInput) is not problem.startswith("the API server refuses:"), error
        assert not isinstance(error, errors.TemporaryApiError), error
