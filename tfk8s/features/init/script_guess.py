"""Guesses the cluster that a script needs from the script's text, which is parsed and never executed.

Three parts of a script name jobs and tasks: devices such as `/job:worker/task:1`, the ClusterSpec, and the defaults of
flags such as `--worker_hosts`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfk8s.core import naming
from tfk8s.core.spec import DEFAULT_PORT, MAX_TASKS
from tfk8s.errors import InvalidInput

# "/job:worker/task:1", or "/job:worker/task:{i}" if the script computes the index.
_TASK = re.compile(r"/job:([A-Za-z][A-Za-z0-9_]*)(?:/replica:\d+)?(?:/task:(\d+|[{%]))?", re.ASCII)
_TARGET = re.compile(r"grpc://(?:localhost|127\.0\.0\.1):(\d{1,5})\b", re.ASCII)
_ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1):(\d{1,5})", re.ASCII)
_SESSIONS = ("Session", "InteractiveSession")
_PARAMETER_SERVERS = "ParameterServerStrategy("  # of TensorFlow 2: the jobs have these names
_LOCAL = "localhost"  # the job of a process without a cluster
_HOSTS = "_hosts"  # ends the name of a flag with the addresses of a job
_MAX_DEPTH = 12  # of expressions in each other, so that no script takes long


@dataclass(frozen=True, slots=True)
class Guess:
    """The cluster that a script seems to need.

    Attributes:
        jobs: the number of tasks of each job, as the script's text shows them.
        unsure: the jobs that may have more tasks, because the script computes indices or addresses.
        port: the master's port.
    """

    jobs: Mapping[str, int] = field(default_factory=lambda: {"worker": 2})
    unsure: frozenset[str] = frozenset()
    port: int = DEFAULT_PORT


def guess(name: str, script: bytes) -> Guess:
    """Return the cluster that a script's text names.

    Args:
        name: the script's name, for errors.
        script: its text.

    Raises:
        InvalidInput: the text is not a Python script.
    """
    tree = _parse(name, script)
    text = script.decode(errors="replace")
    jobs, unsure = _devices(text)
    reader = _ScriptReader(tree)
    for job, tasks in reader.clusters().items():
        jobs[job] = max(jobs.get(job, 1), tasks or 1)
        (unsure.discard if tasks else unsure.add)(job)
    targets = _ports(_TARGET, (text, *reader.targets()))
    ports = targets or _ports(_ADDRESS, reader.addresses())
    if not jobs:
        jobs = {"ps": 1, "worker": 2} if _PARAMETER_SERVERS in text else {"worker": 1}
    return Guess(jobs, frozenset(unsure), min(ports, default=DEFAULT_PORT))


def _parse(name: str, script: bytes) -> ast.AST:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the script's text
            return ast.parse(script)
    except SyntaxError as error:
        reason = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "it is nested too deeply"
    raise InvalidInput(
        f'"{name}" is not a Python script: {reason}', help="name a program in Python 3, or leave out --from"
    )


def _ports(pattern: re.Pattern[str], texts: Iterable[str]) -> list[int]:
    found = [int(port) for text in texts for port in pattern.findall(text)]
    return [port for port in found if 0 < port < 65536]


def _devices(text: str) -> tuple[dict[str, int], set[str]]:
    """Return the number of tasks of each job that the devices in a text name, and the jobs with computed indices."""
    jobs: dict[str, int] = {}
    unsure = set()
    for job, index in _TASK.findall(text):
        if job == _LOCAL:
            continue
        known = index.isdecimal()
        jobs[job] = max(jobs.get(job, 1), min(int(index) + 1, MAX_TASKS) if known else 2 if index else 1)
        if index and not known:
            unsure.add(job)
    return jobs, unsure


class _ScriptReader:
    """The names, flags and ClusterSpecs of a script.

    Args:
        tree: the script.
    """

    def __init__(self, tree: ast.AST) -> None:
        self._names: dict[str, ast.expr] = {}
        self._flags: dict[str, ast.expr] = {}
        self._clusters: list[ast.expr] = []
        self._targets: list[ast.expr] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._names.setdefault(target.id, node.value)
            elif isinstance(node, ast.Call):
                self._read_call(node)

    def _read_call(self, call: ast.Call) -> None:
        name = _name(call.func)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        first = call.args[0] if call.args else None
        if name in ("ClusterSpec", "Server") and first is not None:
            self._clusters.append(first)
        elif name in _SESSIONS and (target := keywords.get("target", first)) is not None:
            self._targets.append(target)
        elif isinstance(first, ast.Constant) and isinstance(first.value, str):
            if name.startswith("DEFINE_"):  # of tf.app.flags and absl
                default = keywords.get("default", call.args[1] if len(call.args) > 1 else None)
            elif first.value.startswith("--"):  # of argparse and click
                default = keywords.get("default")
            else:
                return
            self._flags[first.value.lstrip("-").replace("-", "_")] = default or ast.Constant(None)

    def clusters(self) -> dict[str, int | None]:
        """Return the number of tasks of each job; None if the script computes their addresses."""
        jobs: dict[str, int | None] = {}
        hosts = {flag.removesuffix(_HOSTS): value for flag, value in self._flags.items() if flag.endswith(_HOSTS)}
        for job, value in hosts.items():
            if naming.is_job_name(job):
                jobs[job] = _count(_split(self._value(value), ","))
        for cluster in map(self._value, self._clusters):
            for job, tasks in cluster.items() if isinstance(cluster, dict) else ():
                if isinstance(job, str) and naming.is_job_name(job):
                    count = _count([tasks] if isinstance(tasks, str) else tasks)
                    jobs[job] = max(filter(None, (jobs.get(job), count)), default=None)
        return jobs

    def targets(self) -> list[str]:
        """Return the targets of sessions that need no execution."""
        return [target for target in map(self._value, self._targets) if isinstance(target, str)]

    def addresses(self) -> list[str]:
        """Return the addresses in the ClusterSpecs."""
        found: list[Any] = []
        for cluster in map(self._value, self._clusters):
            for tasks in cluster.values() if isinstance(cluster, dict) else ():
                listed = list(tasks.values()) if isinstance(tasks, dict) else tasks
                found += listed if isinstance(listed, list) else [listed]
        return [address for address in found if isinstance(address, str)]

    def _value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """Return the value of an expression; None if the script has to be executed for it."""
        if depth > _MAX_DEPTH:
            return None

        def value(part: ast.expr | None) -> Any:
            return self._value(part, depth + 1)

        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return value(self._names.get(node.id))
            case ast.Attribute():  # FLAGS.worker_hosts
                return value(self._flags.get(node.attr))
            case ast.List() | ast.Tuple():
                return [value(part) for part in node.elts]
            case ast.Dict():
                pairs = [(value(key), value(part)) for key, part in zip(node.keys, node.values, strict=True)]
                return {key: part for key, part in pairs if isinstance(key, str | int)}
            case ast.Call():
                return _called(node, value)
            case ast.BinOp() | ast.ListComp():
                return _computed(node, value)
        return None


def _called(call: ast.Call, value: Callable[[ast.expr], Any]) -> Any:
    """Return the value of a call, if it is one of the few that ClusterSpecs are made with."""
    match call:
        case ast.Call(func=ast.Attribute(attr="split", value=text), args=[separator]):
            return _split(value(text), value(separator))
        case ast.Call(func=ast.Name(id="range"), args=[count]):
            return _repeat([None], value(count))
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {keyword.arg: value(keyword.value) for keyword in keywords if keyword.arg}
        case ast.Call(func=function, args=[cluster, *_]) if _name(function) == "ClusterSpec":
            return value(cluster)
    return None


def _computed(node: ast.BinOp | ast.ListComp, value: Callable[[ast.expr], Any]) -> Any:
    """Return the value of a sum, of a repeated list, or of a list comprehension, whose elements stay unknown."""
    match node:
        case ast.BinOp(op=ast.Add()):
            return _sum(value(node.left), value(node.right))
        case ast.BinOp(op=ast.Mult()):
            return _repeat(value(node.left), value(node.right))
        case ast.ListComp(generators=[ast.comprehension(ifs=[], iter=source)]):
            found = value(source)
            return [None] * len(found) if isinstance(found, list) else None
    return None


def _name(function: ast.expr) -> str:
    """Return the last part of a function's name, `Server` of `tf.train.Server`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _split(text: object, separator: object) -> list[Any] | None:
    if isinstance(text, list):  # a flag of `DEFINE_list`
        return text
    is_known = isinstance(text, str) and isinstance(separator, str)
    return str(text).split(str(separator)) if is_known and text and separator else None


def _sum(left: Any, right: Any) -> Any:
    are_known = all(isinstance(part, str) for part in (left, right)) or all(
        isinstance(part, list) for part in (left, right)
    )
    return left + right if are_known else None


def _repeat(part: Any, times: Any) -> list[Any] | None:
    is_known = isinstance(part, list) and isinstance(times, int) and len(part) * times <= MAX_TASKS
    return part * times if is_known else None


def _count(tasks: Iterable[Any] | None) -> int | None:
    """Return the number of tasks that a list of addresses has, or a mapping from indices to addresses."""
    if isinstance(tasks, dict):
        indices = [index for index in tasks if isinstance(index, int) and 0 <= index < MAX_TASKS]
        return max(indices) + 1 if indices else None
    return min(len(tasks), MAX_TASKS) or None if isinstance(tasks, list) else None
