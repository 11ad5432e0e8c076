"""The container of a replica: its program, its environment variables and its resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.features.init.kubeflow.located_fields import Fields
from tfk8s.jobfile import types, values

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")  # what Kubernetes expands in commands and in values of variables
_GPU = re.compile(r".*/gpu(s|\.shared)?")
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config_map"}
_ENTRYPOINT = "ENTRYPOINT"
_NO_COMMAND = (
    f"write the ENTRYPOINT of the image into program, in place of {_ENTRYPOINT}; it is printed by "
    "docker inspect --format '{{json .Config.Entrypoint}} {{json .Config.Cmd}}' IMAGE"
)


def expand(text: str, values: Mapping[str, str | None]) -> tuple[str, list[str]]:
    """Expand the references to variables in a text, as Kubernetes does.

    Args:
        values: the values of variables; None if the value is known in the pod only.

    Returns:
        The text, and the names of the variables whose values are not known; their references stay.
    """
    unknown: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        if name in values and values[name] is None:
            unknown.append(name)
        value = values.get(name)
        return match[0] if value is None else value

    return _REFERENCE.sub(replace, text), unknown


def read(container: Fields, job: str, notes: list[str]) -> dict[str, Any]:
    """Return the keys of the job that a replica's container has; `notes` gets what is left out.

    Raises:
        JobFileError: a field is not valid, or the container has no image.
    """
    if "image" not in container:
        raise container.error("", "this container has no image", "expected an image")
    keys = {"image": container.value("image", types.IMAGE)}
    variables, env = _variables(container.each("env"), job, notes)
    if env:
        keys["env"] = env
    keys["program"] = _program(container, variables, job, notes)
    if folder := container.text("workingDir"):
        keys["pod"] = {"containers": [{"name": "server", "workingDir": folder}]}
    return keys | _resources(container.fields("resources"), job, notes)


def _program(container: Fields, variables: Mapping[str, str | None], job: str, notes: list[str]) -> list[str]:
    command, arguments = container.texts("command"), container.texts("args")
    if not command and arguments and Program(tuple(arguments)).python_arguments:
        notes.append(f"{job}: the args are the command, without the ENTRYPOINT of the image")
    elif not command:
        command = [_ENTRYPOINT]
        notes.append(f"{job}: {_NO_COMMAND}")
    expanded = []
    for word in (*command, *arguments):
        text, unknown = expand(word, variables)
        expanded.append(text)
        for name in unknown:
            notes.append(f"{job}: $({name}) in the command stays as it is; let the program read the variable")
    # A relative path of a Python file would be a script beside the job file.
    is_script = expanded[0].endswith(".py") and not expanded[0].startswith("/")
    return ["env", *expanded] if is_script else expanded


def _variables(
    variables: list[Fields], job: str, notes: list[str]
) -> tuple[dict[str, str | None], dict[str, str | dict[str, str]]]:
    """Return the values that commands can refer to, and the variables of the job."""
    known: dict[str, str | None] = {"TF_CONFIG": None}
    env: dict[str, str | dict[str, str]] = {}
    for variable in variables:
        name, source = variable.text("name"), _source(variable)
        text, unknown = expand(variable.text("value"), known)
        known[name] = None if "valueFrom" in variable or unknown else text
        if re.search(values.RESERVED_ENV, name):
            notes.append(f'{job}: variable "{name}" is left out: tfk8s sets it')
        elif source is None and known[name] is None:  # Kubernetes gets the value when the container starts
            notes.append(f'{job}: variable "{name}" is left out: its value is known in the pod only')
        else:
            env[name] = text if source is None else source
    return known, env


def _source(variable: Fields) -> dict[str, str] | None:
    """Return the source of a variable's value, if a job file can name it."""
    sources = variable.fields("valueFrom")
    for key, name in _SOURCES.items():
        if key in sources:
            reference = sources.fields(key)
            return {name: reference.text("name"), "key": reference.text("key")}
    return None


def _resources(resources: Fields, job: str, notes: list[str]) -> dict[str, Any]:
    """Return the keys of the job about resources: limits, or requests without a limit."""
    keys: dict[str, Any] = {}
    requests, limits = resources.fields("requests"), resources.fields("limits")
    for key, type_ in (("cpu", types.CPU), ("memory", types.SIZE)):
        request, limit = requests.value(key, type_), limits.value(key, type_)
        amount = request if limit is None else limit
        if amount is not None:
            keys[key] = amount
        if request is not None and request != limit:
            notes.append(f"{job}: {key} {amount} is both the request and the limit")
    for name in limits.keys:
        amount = limits.value(name, types.AMOUNT) if _GPU.fullmatch(name) else None
        if "gpus" not in keys and str(amount).isdecimal():
            keys["gpus"] = int(str(amount))
            keys |= {} if name == "nvidia.com/gpu" else {"gpu_resource": name}
            requests.drop(name)
    notes += [f"{job}: the resource {name} is left out" for name in dict.fromkeys([*limits.left(), *requests.left()])]
    return keys


def less(memory: str, shm: str) -> str | None:
    """Return an amount of memory without another amount, or None if nothing would be left."""
    left = Quantity.parse(memory).value - Quantity.parse(shm).value
    return str(Quantity("", left) + Quantity.parse("0")) if left > 0 else None
