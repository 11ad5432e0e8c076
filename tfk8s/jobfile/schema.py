"""The keys of a job file and their types, and the JSON Schema of job files for editors and Helm.

`types` and `validation` define the types; `cross_checks` compares the values of several keys.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import spec
from tfk8s.jobfile import pod, types
from tfk8s.jobfile.declared import struct
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.mappings import (
    ENV_VALUE,
    HISTORY,
    IDLE,
    METRICS,
    NETWORK,
    PROGRAM,
    RUN,
    SCRIPT,
    SECURITY,
    TOLERATION,
    TOPOLOGY,
)
from tfk8s.jobfile.types import DEFINITIONS, Choice
from tfk8s.jobfile.validation import Container, Key, List, Map, Validator
from tfk8s.jobfile.volumes import VOLUME

MAX_JOBS = 100
_MAX_AVOIDED = 100  # each is a rule in each pod
_POD_KEYS = {  # of jobs, and of all pods
    "ENV": Map(types.ENV_NAME, ENV_VALUE),
    "POD_LABELS": Map(types.USER_LABEL_KEY, types.LABEL_VALUE),
    "POD_ANNOTATIONS": Map(types.USER_LABEL_KEY, types.TEXT),
    "VOLUMES": List(VOLUME),
    "POD": pod.POD,
}
JOB = struct(
    spec.Job,
    {
        **_POD_KEYS,
        "LABELS": Map(types.LABEL_KEY, types.LABEL_VALUE),
        "TOLERATIONS": List(TOLERATION),
        "MODULES": List(types.MODULE),
        "TOPOLOGY": TOPOLOGY,
        "PROGRAM": PROGRAM,
    },
    make=dict,
    rule_schema={
        "if": {"required": ["accelerator"]},
        "then": {"required": ["gpus"], "properties": {"gpus": {"minimum": 1}}},
    },
)


class _JobForm(Container):
    """The three forms of a job: a number of tasks, a mapping, or a list of addresses."""

    accepts = (int, list, dict)
    expected = "a number of tasks, a mapping, or a list of addresses"
    _addresses = List(types.ADDRESS, minimum=1, maximum=spec.MAX_TASKS)
    # A validator's messages are about the form that the user chose, because each form has keywords of its own type.
    json_schema = {  # noqa: RUF012 - nobody changes it
        **types.TASKS.json_schema,
        **_addresses.json_schema,
        "type": ["integer", "array", "object"],
        "if": {"type": "object"},
        "then": JOB.json_schema,
        "description": "A number of tasks, a mapping with more settings, or a list of the addresses of running "
        "servers, in the order of their indices. Either all jobs have addresses, or none.",
    }

    def read_entries(self, form: Any, path: Path, validator: Validator, /) -> Any:
        """Return the keyword arguments of `spec.Job`, without the name."""
        if isinstance(form, dict):
            return JOB.read_entries(form, path, validator)
        if isinstance(form, int):
            return {"tasks": types.TASKS.read(form, path)}
        addresses = self._addresses.read_entries(form, path, validator)
        return {"tasks": len(addresses), "addresses": addresses}

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a plain number of tasks."""
        return types.TASKS.suggest(value, text)


JOB_FILE = struct(
    spec.JobFile,
    {
        **_POD_KEYS,
        "JOBS": Map(types.JOB_NAME, _JobForm(), minimum=1, maximum=MAX_JOBS),
        "SECRETS": List(types.NAME, unique=""),
        "NODES": List(types.NAME, maximum=_MAX_AVOIDED, unique=""),
        "NETWORK": NETWORK,
        "METRICS": METRICS,
        "HISTORY": HISTORY,
        "SECURITY": SECURITY,
        "SCRIPT": SCRIPT,
        "RUN": RUN,
        "IDLE": IDLE,
    },
    title="tfk8s job file",
    make=dict,
)
_VERSION = Key(Choice(spec.API_VERSION), "The version of this format.", spec.API_VERSION, required=True)
JOB_FILE.keys = {"apiVersion": _VERSION, **JOB_FILE.keys}

JOB_FILE.misplaced = {name: f"this key belongs to a job, as in jobs: {{worker: {{{name}: …}}}}" for name in JOB.keys}
JOB_FILE.misplaced["priority"] = JOB_FILE.misplaced["priority_class"]
del JOB_FILE.misplaced["kind"]  # there, it comes from a Kubernetes object
JOB.misplaced = dict.fromkeys(JOB_FILE.keys, "this key belongs at the top level, beside jobs")
# The keys of Kubernetes' containers that jobs have under other names.
for _words, _keys, _example in (
    ("resources limits requests", "cpu, memory and gpus", "cpu: 2, memory: 4Gi, gpus: 1"),
    ("command args", "program", 'program: [train.py, --epochs, "3"]'),
):
    for _word in _words.split():
        JOB.misplaced[_word] = f"a job has {_keys} instead, as in {{{_example}}}"
        JOB_FILE.misplaced[_word] = f"a job has {_keys} instead, as in jobs: {{worker: {{{_example}}}}}"

_ORDERED = ("properties", "default")  # keywords with values in the order that readers see


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    definitions = {name: struct.definition() for name, struct in DEFINITIONS.items() if struct is not JOB_FILE}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{spec.API_VERSION.replace('/', ':')}:job-file",
        **_sorted({"$defs": definitions, **JOB_FILE.definition()}),
    }


def _sorted(schema: Any, keyword: str = "") -> Any:
    if isinstance(schema, list):
        return [_sorted(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    names = schema if keyword in _ORDERED else sorted(schema)
    return {name: _sorted(schema[name], name) for name in names}
