"""The answers to `tfk8s top`: the usage of tasks and scripts, as `meter` prints it, checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a task or a script. None stands for what nobody measures.

    Attributes:
        name: the task ("worker/1"), or the script's name.
        cpu: the cores in use, over a second.
        cpu_limit: the limit, in cores.
        memory: the memory that can't be given back, in bytes.
        memory_limit: the limit, in bytes.
        received, sent: the traffic of its network, in bytes a second.
        gpu: the busy share of its GPUs, from 0 to 1.
        gpu_memory: the memory in use on its GPUs, in bytes.
        gpu_memory_limit: the memory of its GPUs, in bytes.
        problem: why nothing was measured; "" if nothing is wrong.
    """

    name: str
    cpu: float | None = None
    cpu_limit: float | None = None
    memory: float | None = None
    memory_limit: float | None = None
    received: float | None = None
    sent: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None
    gpu_memory_limit: float | None = None
    problem: str = ""


_NUMBERS = [field.name for field in dataclasses.fields(Usage) if field.name not in ("name", "problem")]


def parse(name: str, answers: Sequence[Any], pid: int = 0) -> Usage:
    """Return the usage in the answer about a process, or about a container (0).

    The answers come from a pod: what is no amount counts as not measured.
    """
    for answer in answers:
        if isinstance(answer, Mapping) and answer.get("pid") == pid:
            amounts = {key: answer[key] for key in _NUMBERS if _is_amount(answer.get(key))}
            return Usage(name=name, **amounts)
    return Usage(name=name, problem="has no process")


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
