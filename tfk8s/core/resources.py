"""Amounts of CPU, memory and GPUs: what tasks request, and what nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile

CPU, MEMORY = "cpu", "memory"
NO_GPUS = (CPU, MEMORY, "ephemeral-storage", "pods")
_UNITS = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20}


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts by the names of Kubernetes' resources.

    Attributes:
        amounts: the amounts, such as {"cpu": 2, "memory": 4294967296, "nvidia.com/gpu": 1}; 0 is left out.
    """

    amounts: Mapping[str, Decimal] = field(default_factory=dict)

    @classmethod
    def parse(cls, amounts: Mapping[str, object]) -> Resources:
        """Return the amounts of a Kubernetes object, such as {"cpu": 2, "memory": "4Gi"}."""
        return _without_zeros({name: Quantity.parse(str(amount)).value for name, amount in amounts.items()})

    def __add__(self, other: Resources) -> Resources:
        return self._combined(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        return self._combined(other, -1)

    def __mul__(self, count: int) -> Resources:
        return _without_zeros({name: amount * count for name, amount in self.amounts.items()})

    def _combined(self, other: Resources, sign: int) -> Resources:
        names = dict.fromkeys((*self.amounts, *other.amounts))
        return _without_zeros({name: self[name] + sign * other[name] for name in names})

    def __or__(self, other: Resources) -> Resources:
        """Return the larger of each two amounts."""
        names = dict.fromkeys((*self.amounts, *other.amounts))
        return _without_zeros({name: max(self[name], other[name]) for name in names})

    def __getitem__(self, name: str) -> Decimal:
        return self.amounts.get(name, Decimal(0))

    def only(self, names: Iterable[str]) -> Resources:
        """Return these amounts alone, in this order; 0 too."""
        return Resources({name: self[name] for name in names})

    @property
    def gpus(self) -> int:
        """The number of GPUs, of all kinds."""
        return int(sum(amount for name, amount in self.amounts.items() if name not in NO_GPUS))

    @property
    def cells(self) -> tuple[str, str, str]:
        """The amounts of CPU, memory and GPUs as texts; "" for none."""
        gpus = str(self.gpus) if self.gpus else ""
        cpu, memory = (amount_text(name, self[name]) if self[name] else "" for name in (CPU, MEMORY))
        return cpu, memory, gpus

    def __str__(self) -> str:
        return ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in self.amounts.items()) or "nothing"


NOTHING = Resources()


def total(parts: Iterable[tuple[Resources, int]]) -> Resources:
    """Return the sum of amounts, each times a number of tasks."""
    return sum((amounts * tasks for amounts, tasks in parts), NOTHING)


def named(job_file: JobFile) -> Resources:
    """Return what a job file names for all tasks, without defaults."""
    return total((_named(job), job.tasks) for job in job_file.jobs)


def _named(job: Job) -> Resources:
    quantities = {CPU: job.cpu, MEMORY: job.memory}
    amounts = {name: quantity.value for name, quantity in quantities.items() if quantity is not None}
    return _without_zeros({**amounts, job.gpu_resource: Decimal(job.gpus)})


def amount_text(name: str, amount: Decimal) -> str:
    """Return an amount in a job file's units, rounded down: 1500m, 2, 4Gi, 512Mi."""
    if name == CPU:
        return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"
    if name != MEMORY or amount < _UNITS["Mi"]:
        return str(int(amount))
    unit = next((unit for unit, size in _UNITS.items() if amount % size == 0), "Mi")
    return f"{int(amount) // _UNITS[unit]}{unit}"


def _without_zeros(amounts: Mapping[str, Decimal]) -> Resources:
    return Resources({name: amount for name, amount in amounts.items() if amount})
