"""The picture of a step: a row for each device, with bars for operations and for the tensors that arrive."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tfk8s.features.timeline.critical_path import Event, Segment, tensor_name
from tfk8s.features.timeline.lanes import take_lane
from tfk8s.features.timeline.steps import TracedDevice, TracedOperation, TracedStep, Transfer
from tfk8s.features.timeline.summary import TaskTimes, percent, size_text, task_times, time_text

MAX_OPERATIONS = 600
MAX_TRANSFERS = 200
MAX_LANES = 8
ZOOMS = (1, 4, 16)
_LANE, _PADDING, _LEAST_ROW, _AXIS = 18, 6, 44, 22  # in pixels
_UNITS = 10_000  # of the drawing, for the whole width
_MAX_TICKS = 10
_LEAST_LABEL = 1.5  # percent of the width, under which a bar has no text

_Event = TypeVar("_Event", TracedOperation, Transfer)


@dataclass
class _Lanes:
    """Bars in lanes, in which no bar covers another one unless there are too many."""

    ends: list[int] = field(default_factory=list)  # the end of the last bar of each lane
    bars: list[tuple[int, Event]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Put an event into the first lane that is free, or into the last one."""
        self.bars.append((take_lane(self.ends, event.start, event.end, MAX_LANES), event))


@dataclass
class _Row:
    """The row of a device: lanes of its operations, then lanes of the tensors that it receives."""

    device: TracedDevice
    top: int = 0  # in the picture, in pixels
    operations: _Lanes = field(default_factory=_Lanes)
    arrivals: _Lanes = field(default_factory=_Lanes)

    @property
    def height(self) -> int:
        """The height in pixels."""
        lanes = len(self.operations.ends) + len(self.arrivals.ends)
        return max(lanes * _LANE + _PADDING, _LEAST_ROW)

    def bars(self) -> list[tuple[int, Event]]:
        """Return the top of each bar in the row, in pixels, and its event."""
        below = len(self.operations.ends)
        arrivals = [(lane + below, event) for lane, event in self.arrivals.bars]
        return [(lane * _LANE + _PADDING // 2, event) for lane, event in [*self.operations.bars, *arrivals]]


def chart(step: TracedStep, path: Sequence[Segment], key: str) -> str:
    """Return the picture of a step as HTML.

    Args:
        path: the critical path.
        key: a text that no other chart of the page has.
    """
    span = step.span
    on_path = {id(segment.event) for segment in path}
    operations = _most_important(step.operations, on_path, MAX_OPERATIONS)
    transfers = _most_important(step.transfers, on_path, MAX_TRANSFERS)
    rows = _rows(step, operations, transfers)
    height = max((row.top + row.height for row in rows.values()), default=_AXIS)
    times = {one.task: one for one in task_times(step)}
    names = "".join(_name(row, times[row.device.task], span) for row in rows.values())
    bars = "".join(_bars(row, times[row.device.task], span or 1, on_path) for row in rows.values())
    return (
        f"{''.join(_zoom(key, factor) for factor in ZOOMS)}"
        f"<div class=chart><div class=names><div class=axis></div>{names}</div><div class=scroll>"
        f"<div class=plot><div class=axis>{_axis(span)}</div>{bars}"
        f'<svg height={height} viewBox="0 0 {_UNITS} {height}" preserveAspectRatio="none">'
        f"{_lines(rows, span or 1, on_path)}</svg></div></div></div>{_LEGEND}"
        f"{_left_out(len(step.operations) - len(operations), 'operations')}"
        f"{_left_out(len(step.transfers) - len(transfers), 'transfers')}"
    )


_LEGEND = (
    "<p class=legend><span class=l-path>on the critical path</span><span class=l-op>other operation</span>"
    "<span class=l-sent>tensor on its way to the task</span><span class=l-idle>idle</span></p>"
)


def zoom_style() -> str:
    """Return the style by which a choice of the zoom takes effect, without a script."""
    return "".join(
        f"input.z{factor}:checked ~ .chart .plot {{ width: {100 * factor}%; }}" for factor in ZOOMS if factor > 1
    )


def _zoom(key: str, factor: int) -> str:
    checked = " checked" if factor == 1 else ""
    name = f"zoom-{key}-{factor}"
    return (
        f'<input class=z{factor} type=radio name="zoom-{key}" id="{name}"{checked}>'
        f'<label class=soft for="{name}"> {factor}× </label>'
    )


def _left_out(count: int, things: str) -> str:
    return f"<p class=soft>{count:,} shorter {things} are not drawn.</p>" if count else ""


def _most_important(events: Iterable[_Event], on_path: set[int], limit: int) -> list[_Event]:
    """Return the events of the critical path, and the longest of the others."""
    return sorted(events, key=lambda one: (id(one) not in on_path, one.start - one.end))[:limit]


def _rows(
    step: TracedStep, operations: Iterable[TracedOperation], transfers: Iterable[Transfer]
) -> dict[TracedDevice, _Row]:
    rows = {device: _Row(device) for device in step.devices}
    for operation in sorted(operations, key=lambda one: (one.start, -one.end)):
        rows[operation.device].operations.add(operation)
    for transfer in sorted(transfers, key=lambda one: (one.start, -one.end)):
        rows[transfer.target].arrivals.add(transfer)
    top = _AXIS
    for row in rows.values():
        row.top = top
        top += row.height
    return rows


def _name(row: _Row, times: TaskTimes, span: int) -> str:
    shares = ", ".join(
        f"{percent(100 * part / (span or 1))} {word}"
        for part, word in ((times.busy, "busy"), (times.receiving, "receiving"), (times.idle, "idle"))
        if part
    )
    task, device = html.escape(row.device.task), html.escape(row.device.name)
    return f'<div style="height:{row.height}px" title="{shares}"><b>{task}</b> {device}<br>{shares}</div>'


def _axis(span: int) -> str:
    """Return times at round distances."""
    distance = 1
    while span // distance > _MAX_TICKS:
        distance = distance * 5 // 2 if str(distance).startswith("2") else distance * 2
    return "".join(
        f'<span style="left:{_share(tick, span or 1)}%">{time_text(tick)}</span>'
        for tick in range(0, span - distance // 2, distance)
    )


def _bars(row: _Row, times: TaskTimes, span: int, on_path: set[int]) -> str:
    idle = "".join(
        f'<i class=idle style="left:{_share(start, span)}%;width:{_share(end - start, span)}%" title="idle for'
        f' {time_text(end - start)}"></i>'
        for start, end in times.gaps
        if 400 * (end - start) > span
    )
    bars = "".join(_bar(top, one, span, is_on_path=id(one) in on_path) for top, one in row.bars())
    return f'<div class=row style="height:{row.height}px">{idle}{bars}</div>'


def _bar(top: int, event: Event, span: int, *, is_on_path: bool) -> str:
    width = _share(event.end - event.start, span)
    is_wide = float(width) >= _LEAST_LABEL
    label, text = _texts(event)
    title = f"{text}: {time_text(event.end - event.start)}, from {time_text(event.start)}"
    kind = "sent" if isinstance(event, Transfer) else "op"
    classes = f"{kind}{' path' * is_on_path}{' thin' * (not is_wide)}"
    place = f"left:{_share(event.start, span)}%;width:{width}%;top:{top}px"
    return (
        f'<i class="{classes}" style="{place}" title="{html.escape(title)}">{html.escape(label) if is_wide else ""}</i>'
    )


def _texts(event: Event) -> tuple[str, str]:
    """Return the short and the long text of a bar."""
    if isinstance(event, Transfer):
        text = f"{tensor_name(event.tensor)} from {event.source.task}, {size_text(event.size)}"
        return text, text
    return event.name, f"{event.name} ({event.kind})" if event.kind else event.name


def _lines(rows: Mapping[TracedDevice, _Row], span: int, on_path: set[int]) -> str:
    """Return a line for each transfer, from the row of the sender to the bar of the receiver."""
    lines: list[str] = []
    for row in rows.values():
        for top, event in row.bars():
            if isinstance(event, Transfer):
                sender = rows[event.source]
                start = _UNITS * event.start // span
                target = row.top + top + _LANE // 2 - 1
                classes = " class=path" if id(event) in on_path else ""
                lines.append(f"<line x1={start} y1={sender.top + _LANE // 2} x2={start} y2={target}{classes} />")
    return "".join(lines)


def _share(part: int, span: int) -> str:
    return f"{max(100 * part / span, 0):.3f}".rstrip("0").rstrip(".")
