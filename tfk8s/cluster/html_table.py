"""A cluster as a table in HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable

from tfk8s.core.status import ClusterStatus
from tfk8s.errors import Tfk8sError

_HEAD = ("task", "phase", "restarts", "address", "reason")
_CELL = ' style="text-align: left"'  # notebooks align cells to the right, as for numbers


def html_table(observe: Callable[[], ClusterStatus]) -> str:
    """Return the tasks of a cluster as a table; if `observe` finds no cluster, the reason."""
    try:
        status = observe()
    except Tfk8sError as error:
        return f"<p>{html.escape(str(error))}</p>"
    caption = f"{status.name} ({status.backend}): {status.phase}, {status.ready}/{len(status.tasks)} tasks ready"
    rows = [
        _row("td", (str(task.task), task.phase, str(task.restarts), task.address, task.reason)) for task in status.tasks
    ]
    return f"<table><caption>{html.escape(caption)}</caption>{_row('th', _HEAD)}{''.join(rows)}</table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}{_CELL}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
