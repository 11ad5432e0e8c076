"""The container of a replica: its program, its environment variables and its resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.jobfile import types
from tfk8s.jobfile.types import Type
from tfk8s.jobfile.values import Invalid
from tfk8s.tools.kubeflow.draft import Draft, Notes
from tfk8s.tools.kubeflow.fields import Fields

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")  # what Kubernetes expands in commands and in values of variables
_GPU = re.compile(r".*/gpu(s|\.shared)?")
_COMMAND = (
    "the command is the ENTRYPOINT of the image",
    "add command: […]; docker inspect --format '{{json .Config.Entrypoint}} {{json .Config.Cmd}}' IMAGE prints it",
)
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config_map"}


def expand(text: str, values: Mapping[str, str | None]) -> tuple[str, list[str]]:
    """Expand the references to variables in a text, as Kubernetes does.

    Args:
        text: the text.
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


def read(container: Fields, draft: Draft, notes: Notes, trainer: Fields | None = None) -> dict[str, Any]:
    """Read a replica's container into a draft; return the rest as the container `server` of the key `pod`.

    Args:
        container: the container, or a TrainJob's trainer.
        draft: the job.
        notes: what gets lost.
        trainer: a TrainJob's trainer, whose fields override those of the container.
    """

    def source(key: str) -> Fields:
        return container if trainer is None or key not in trainer else trainer

    server: dict[str, Any] = {"name": "server"}
    draft.keys["image"] = source("image").value("image", types.IMAGE)
    if "image" not in source("image"):
        raise container.error("", "this container has no image", "expected an image")
    values, variables = _variables([*container.each("env"), *(trainer.each("env") if trainer else ())], draft)
    command, arguments = source("command").texts("command"), source("args").texts("args")
    if not command and arguments and Program(tuple(arguments)).python_arguments:
        notes.add(f"{draft.name}: the args are the command, without the ENTRYPOINT of the image")
    elif not command:
        raise container.error("", "this container has no command, and a job file needs one", *_COMMAND)
    draft.keys["program"] = _program([*command, *arguments], values, draft, notes)
    if variables:
        server["env"] = variables
    per_node = source("resourcesPerNode")
    resources = per_node.fields("resourcesPerNode") if "resourcesPerNode" in per_node else container.fields("resources")
    if amounts := _resources(resources, draft):
        server["resources"] = amounts
    container.drop("name", "resources", "image", "command", "args")
    return server


def _program(words: list[str], values: Mapping[str, str | None], draft: Draft, notes: Notes) -> list[str]:
    expanded = []
    for word in words:
        text, unknown = expand(word, values)
        expanded.append(text)
        for name in unknown:
            notes.add(f"{draft.name}: $({name}) in the command stays as it is; let the program read the variable")
    # A relative path of a Python file would be a script beside the job file.
    is_script = expanded[0].endswith(".py") and not expanded[0].startswith("/")
    return ["env", *expanded] if is_script else expanded


def _variables(variables: list[Fields], draft: Draft) -> tuple[dict[str, str | None], list[dict[str, Any]]]:
    """Read the variables; return the values that commands can refer to, and the variables for the key `pod`."""
    values: dict[str, str | None] = {"TF_CONFIG": None}
    env: dict[str, Any] = {}
    others = []
    for variable in variables:
        name, value = variable.text("name"), variable.text("value")
        source = _source(variable)
        text, unknown = expand(value, values)
        values[name] = None if "valueFrom" in variable or unknown else text
        env.pop(name, None)
        if source is not None:
            env[name] = source
        elif "valueFrom" in variable:  # Kubernetes gets the value when the container starts
            others.append({"name": name, "valueFrom": variable.plain("valueFrom")})
        elif unknown:
            others.append({"name": name, "value": value})
        else:
            env[name] = text
    if env:
        draft.keys["env"] = env
    return values, others


def _source(variable: Fields) -> dict[str, str] | None:
    """Return the source of a variable's value, if a job file can name it."""
    sources = variable.fields("valueFrom")
    for key, name in _SOURCES.items():
        reference = sources.fields(key)
        if set(reference.keys) == {"name", "key"}:
            return {name: reference.text("name"), "key": reference.text("key")}
    return None


def _resources(resources: Fields, draft: Draft) -> dict[str, Any]:
    """Read the resources; return those for the key `pod`."""
    requests, limits = (_amounts(resources.fields(key)) for key in ("requests", "limits"))
    for key, type_ in (("cpu", types.CPU), ("memory", types.SIZE)):
        if key in limits:  # a limit without a request is the request, too
            amount = requests.get(key, limits[key])
            chosen = amount if is_valid(type_, amount) else limits[key]
            draft.keys[key] = resources.fields("limits").value(key, type_) if chosen is limits[key] else chosen
    gpu = next((name for name in limits if _GPU.fullmatch(name)), None)
    if gpu is not None and str(limits[gpu]).isdecimal():
        draft.keys["gpus"] = int(limits[gpu])
        if gpu != "nvidia.com/gpu":
            draft.keys["gpu_resource"] = gpu
        requests.pop(gpu, None)
        del limits[gpu]
    found = {"requests": requests, "limits": limits, **resources.rest()}
    return {key: value for key, value in found.items() if value}


def _amounts(amounts: Fields) -> dict[str, Any]:
    """Return amounts by resource, as text."""
    return {key: str(amounts.value(key, types.AMOUNT)) for key in amounts.keys}


def is_valid(type_: Type, value: Any) -> bool:
    """Return whether a job file can have a value of this type."""
    if type(value) not in type_.accepts:
        return False
    try:
        type_.read(value, ())
    except Invalid:
        return False
    return True


def less(memory: str, shm: str) -> str | None:
    """Return an amount of memory without another amount, or None if nothing would be left."""
    left = Quantity.parse(memory).value - Quantity.parse(shm).value
    return str(Quantity("", left) + Quantity.parse("0")) if left > 0 else None
