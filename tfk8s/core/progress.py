"""The progress of a script or a program: the line that it writes, and the line's meaning.

    tfk8s: step 120/1000 (12%), 35.1 steps/s, 25s left, loss=0.31

This file also runs in pods.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PREFIX = "tfk8s: step "
BAR_WIDTH = 20
_MAX_LENGTH = 10_000  # characters of a line
_LONGEST = 1e10  # seconds that may be left, three centuries
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_LINE = re.compile(
    r"(?P<step>-?\d{1,18})(?:/(?P<total>\d{1,18}) \(-?\d+%\))?(?:, (?P<rate>\d[\d.e+-]*) steps/s)?(?:, \w+ left)?"
    r"(?P<metrics>(?:, [^,=]+=[^,]*)*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """The progress of a script or a program.

    Attributes:
        step: the step that was reported last.
        total: the number of all steps; None if unknown.
        rate: the steps in a second; None if unknown.
        metrics: the texts of the metrics by name.
    """

    step: int
    total: int | None = None
    rate: float | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)

    @property
    def remaining(self) -> float | None:
        """The seconds until the last step; None if unknown."""
        if not self.total or not self.rate or self.step >= self.total:
            return None
        left = (self.total - self.step) / self.rate
        return left if left < _LONGEST else None

    @property
    def summary(self) -> str:
        """The step, the total, the rate and the remaining time."""
        rate = () if self.rate is None else (f"{self.rate:.3g} steps/s",)
        return ", ".join((self._steps, *rate, *self._left))

    def __str__(self) -> str:
        return ", ".join((self.summary, *(f"{name}={text}" for name, text in self.metrics.items())))

    def bar(self, width: int) -> str:
        """Return a bar, with `width` characters between its ends; "" if the total is unknown."""
        if self.total is None or self.total <= 0:
            return ""
        done = max(0, min(width, width * self.step // self.total))
        return f"[{'#' * done}{'-' * (width - done)}]"

    @property
    def terminal_line(self) -> str:
        """The line for a terminal, with a bar."""
        bar = self.bar(BAR_WIDTH)
        return f"{bar} {self}" if bar else f"{PREFIX}{self}"

    @property
    def _steps(self) -> str:
        if self.total is None or self.total <= 0:
            return str(self.step)
        return f"{self.step}/{self.total} ({100 * self.step // self.total}%)"

    @property
    def _left(self) -> tuple[str, ...]:
        return () if self.remaining is None else (f"{duration(self.remaining)} left",)


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: `5m12s`."""
    left = int(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts or unit == "s":
            parts.append((number, unit))
    return "".join(f"{number}{unit}" for number, unit in parts[:2] if number or len(parts) == 1)


def metric_text(value: object) -> str:
    """Return a metric as a line shows it: four digits of a number, else the text without commas."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        plain = "".join(character if character.isprintable() else " " for character in str(value))
        return " ".join(plain.replace(",", " ").split())
    is_whole = number.is_integer() and abs(number) < 1e15
    return str(int(number)) if is_whole else f"{number:.4g}"


def parse(text: str) -> StepProgress | None:
    """Return the progress in a line; None if the line is another. Each number may be a pod's lie."""
    _, mark, rest = text.partition(PREFIX)
    match = _LINE.fullmatch(rest.strip()) if mark and len(rest) <= _MAX_LENGTH else None
    if match is None:
        return None
    pairs = (pair.partition("=") for pair in match["metrics"].split(", ") if pair)
    try:
        rate = float(match["rate"]) if match["rate"] else None
    except ValueError:  # "1..2"
        return None
    return StepProgress(
        step=int(match["step"]), total=int(match["total"]) if match["total"] else None,
        rate=rate if rate is not None and math.isfinite(rate) else None,
        metrics={name: value for name, _, value in pairs},
    )  # fmt: skip


def latest(lines: Iterable[str]) -> StepProgress | None:
    """Return the progress in the last of the lines that has one."""
    return next((found for line in reversed(list(lines)) if (found := parse(line))), None)
