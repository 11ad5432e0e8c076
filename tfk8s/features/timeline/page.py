"""The page of a recording: one file of HTML without scripts, which loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from tfk8s.features.timeline import clocks
from tfk8s.features.timeline.chart import chart, zoom_style
from tfk8s.features.timeline.critical_path import causes, critical_path, tensor_name
from tfk8s.features.timeline.steps import Recording, TracedOperation, TracedStep, Transfer
from tfk8s.features.timeline.style import STYLE
from tfk8s.features.timeline.summary import percent, sentences, size_text, time_text, total_time, typical_steps

MAX_STEPS = 6
_MAX_ROWS = 20  # of a table
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(recording: Recording, title: str, every: int) -> str:
    """Return the page.

    Args:
        recording: the recording, with at least one step.
        title: the page's title.
        every: the interval of recorded calls.
    """
    shown = typical_steps(recording, MAX_STEPS)
    steps = "".join(_step(recording, step, number) for number, step in enumerate(shown))
    count = len(recording.steps)
    chosen = "all calls" if every == 1 else f"the first two calls with the same fetches, and one in {every}"
    full = " The script ran more: the recording was full." if recording.is_full else ""
    name = html.escape(title)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name=viewport content="width=device-width"><title>{name}</title><style>{STYLE}{zoom_style()}</style>'
        f"<h1>{name}</h1><p class=soft>{count:,} recorded step{'s' * (count != 1)}: {chosen}.{full} A step is one"
        f" <code>session.run</code>. Each part below shows the step of median duration.</p>"
        f"{_calls(recording, shown)}{steps}</html>\n"
    )


def _calls(recording: Recording, shown: Sequence[TracedStep]) -> str:
    """Return a table of the calls, those with the most time first."""
    calls = {step.call: step for step in typical_steps(recording, len(recording.steps))}
    rows = []
    for call, step in list(calls.items())[:_MAX_ROWS]:
        count = recording.calls[call]
        number = sum(one.call == call for one in recording.steps)
        mean = "" if count.mean is None else time_text(count.mean)
        times = mean, time_text(step.duration), time_text(total_time(recording, step))
        rows.append((call, f"{count.count:,}", f"{number:,}", *times))
    left_out = len(calls) - len(rows)
    more = f"<p class=soft>{left_out:,} other calls took less time.</p>" if left_out else ""
    head = ("fetches", "calls", "recorded", "mean without recording", "recorded step", "all calls, about")
    return f"<h3>Calls</h3>{_table(head, rows, texts=1)}{more}" if len(calls) > len(shown) or len(shown) > 1 else ""


def _step(recording: Recording, recorded: TracedStep, number: int) -> str:
    step, shifts = clocks.align(recorded)
    path = critical_path(step)
    found = sentences(causes(path), step)
    said = "".join(
        f'<li><i style="width:{min(share, 100):.1f}%"></i><span>{html.escape(text)}</span></li>'
        for share, text in found
    )
    headline = html.escape(found[0][1]) if found else ""
    return (
        f"<details{' open' * (number == 0)}><summary><h2>{html.escape(step.call)}</h2> <span class=soft>step"
        f" {step.number:,}, {time_text(step.span)}: {headline}</span></summary>{_facts(recording, step, shifts)}"
        f"<h3>The critical path</h3><ol class=causes>{said}</ol><h3>Tasks</h3>{chart(step, path, str(number))}"
        f"<h3>Transfers</h3>{_transfers(step.transfers)}<h3>Operations</h3>{_operations(step.operations)}</details>"
    )


def _facts(recording: Recording, step: TracedStep, shifts: Mapping[str, int]) -> str:
    """Return the durations of a step, and the limits of what the page can know."""
    rest = time_text(max(step.duration - step.span, 0))
    last = f"The last operation ended after {time_text(step.span)}. Percentages are of that time."
    facts = [f"{last} session.run returned {rest} later, with its results and the recording."]
    mean = recording.calls[step.call].mean
    if mean is not None:
        facts.append(f"A call without recording took {time_text(mean)} on average.")
    if step.number == 1:
        facts.append("This is the first call: it contains the preparation of the graph on the tasks.")
    if step.is_cut:
        facts.append("The step had more operations. The page shows the earliest.")
    moved = [f"{task} by {by / 1000:+.3g} ms" for task, by in shifts.items() if by]
    if moved:
        facts.append(
            f"The clocks of tasks differ. Shifted so that no tensor arrives before it is sent: {', '.join(moved)}."
        )
    return f"<p class=soft>{html.escape(' '.join(facts))}</p>"


def _transfers(transfers: Iterable[Transfer]) -> str:
    """Return a table of the transfers, those with the most bytes first."""
    groups: dict[tuple[str, str, str], list[Transfer]] = {}
    for one in transfers:
        groups.setdefault((one.tensor, one.source.task, one.target.task), []).append(one)
    if not groups:
        return "<p class=soft>No tensor went from one task to another.</p>"
    ordered = sorted(groups.items(), key=lambda group: -sum(one.size for one in group[1]))
    rows = [
        (
            tensor_name(tensor), source, target, f"{len(found):,}", size_text(sum(one.size for one in found)),
            time_text(max(one.end - one.start for one in found)),
        )
        for (tensor, source, target), found in ordered[:_MAX_ROWS]
    ]  # fmt: skip
    all_bytes = sum(one.size for found in groups.values() for one in found)
    total = f"<p class=soft>{size_text(all_bytes)} in all.{_and_more(len(ordered), 'tensors')}</p>"
    return _table(("tensor", "from", "to", "times", "bytes", "longest"), rows, texts=3) + total


def _operations(operations: Iterable[TracedOperation]) -> str:
    """Return a table of the operations, those with the most time first."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for one in operations:
        key = one.name, one.kind, one.device.task, one.device.name
        groups.setdefault(key, []).append(one.end - one.start)
    ordered = sorted(groups.items(), key=lambda group: -sum(group[1]))
    all_time = sum(map(sum, groups.values())) or 1
    rows = [
        (*key, f"{len(times):,}", time_text(sum(times)), percent(100 * sum(times) / all_time))
        for key, times in ordered[:_MAX_ROWS]
    ]
    more = _and_more(len(ordered), "operations")
    head = ("operation", "type", "task", "device", "times", "time", "of all operations")
    return _table(head, rows, texts=4) + (f"<p class=soft>{more.strip()}</p>" if more else "")


def _and_more(count: int, things: str) -> str:
    return f" {count - _MAX_ROWS:,} more {things} are not listed." if count > _MAX_ROWS else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """Return a table whose first columns are texts, and the others numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' * (place >= texts)}>{html.escape(cell)}</{tag}>" for place, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<div class=wide><table><tr>{line('th', head)}</tr>{body}</table></div>"
