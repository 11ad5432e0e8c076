"""A cluster as a table in HTML, for notebooks."""

from __future__ import annotations

import html

from tfk8s.core.status import ClusterStatus


def html_table(status: ClusterStatus) -> str:
    """Return the tasks of a cluster as a table."""
    rows = [(str(task.task), task.phase, task.address, task.reason) for task in status.tasks]
    cells = ["".join(f"<td>{html.escape(value)}</td>" for value in row) for row in rows]
    head = "<tr><th>task</th><th>phase</th><th>address</th><th>reason</th></tr>"
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{html.escape(status.name)} ({status.backend})</caption>{head}{body}</table>"
