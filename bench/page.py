"""Writes comparisons as Markdown, and compares their ratios with those of the run before.

A page has a head, which names the machine and the versions, and a section for each subject. A page with another head
is of another machine or of other versions, so nothing on that page is compared or kept.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping

from measure import Bound, Comparison, Spread, own_state

HEADINGS = ("measured", "against", "ratio", "bound", "tfk8s", "the other", "turns", "ratio, run before")
_RATIO = re.compile(r"([\d.,]+) × \(([\d.,]+)–([\d.,]+)\)")
_SCALES = {  # of each unit, from large to small
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB")),
}


def number(value: float) -> str:
    """Return a number with three digits."""
    rounded = float(f"{value:.3g}")  # 0.9996 is 1.00
    digits = 2 - math.floor(math.log10(rounded)) if rounded > 0 else 0
    return f"{value:,.{max(0, digits)}f}"


def amount(value: float, unit: str) -> tuple[float, str]:
    """Return the size of a unit in which a value is a plain number, and the name of this unit."""
    scales = _SCALES.get(unit, ((1.0, unit),))
    return next((scale for scale in scales if value >= scale[0]), scales[-1])


def spread_text(spread: Spread, unit: str) -> str:
    """Return a spread with its unit: the median, then the smallest and the largest figure."""
    size, name = amount(spread.median, unit)
    median, low, high = (number(value / size) for value in spread)
    return f"{median} {name} ({low}–{high})"


def bound_text(comparison: Comparison) -> str:
    """Return a comparison's bound, and whether the figures miss the bound."""
    if not (bound := comparison.bound):
        return ""
    return limits(bound) + ("" if comparison.holds else ", missed")


def limits(bound: Bound) -> str:
    """Return the limits of a bound."""
    size, name = amount(bound.lowest if math.isinf(bound.highest) else bound.highest, bound.unit or "×")
    lowest, highest = f"{bound.lowest / size:g}", f"{bound.highest / size:g}"
    if not bound.lowest:
        return f"≤ {highest} {name}"
    return f"≥ {lowest} {name}" if math.isinf(bound.highest) else f"{lowest}–{highest} {name}"


# ---- the run before --------------------------------------------------------------------------------------------------

Key = tuple[str, str]


def ratios(text: str) -> dict[Key, Spread]:
    """Return the ratio of each row of a section's table."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == len(HEADINGS) and (match := _RATIO.fullmatch(cells[2])):
            found[cells[0], cells[1]] = Spread(*(float(value.replace(",", "")) for value in match.groups()))
    return found


def shown(ratio: Spread) -> Spread:
    """Return a ratio with the digits that a page has, as `before` in `agreement` has them."""
    return Spread(*(float(number(value).replace(",", "")) for value in ratio))


def agreement(comparisons: Iterable[Comparison], before: Mapping[Key, Spread]) -> str:
    """Return a sentence on the ratios that agree with those of the run before; "" if there are none."""
    both = [one for one in comparisons if (one.what, one.against) in before]
    if not both:
        return ""
    differ = [one for one in both if not shown(one.ratio).overlaps(before[one.what, one.against])]
    if not differ:
        return f"All {len(both)} ratios agree with the run before."
    names = "; ".join(f"{one.what}, against {one.against}" for one in differ)
    return f"{len(both) - len(differ)} of {len(both)} ratios agree with the run before. These do not: {names}."


# ---- the page --------------------------------------------------------------------------------------------------------


def row(comparison: Comparison, before: Mapping[Key, Spread]) -> str:
    """Return a row of a table."""
    last = before.get((comparison.what, comparison.against))
    cells = (
        comparison.what,
        comparison.against,
        spread_text(comparison.ratio, "×"),
        bound_text(comparison),
        spread_text(comparison.ours, comparison.unit),
        spread_text(comparison.theirs, comparison.unit),
        str(comparison.turns),
        spread_text(last, "×") if last else "",
    )
    return f"| {' | '.join(cells)} |"


def section(title: str, content: Iterable[Comparison | str], before: str = "") -> str:
    """Return a section.

    Args:
        title: the title.
        content: comparisons, and lines to stand above their table. Each is also written to standard error.
        before: the same section of the run before.
    """
    last = ratios(before)
    comparisons, lines = [], []
    for one in content:
        text = one if isinstance(one, str) else row(one, last)
        print(text, file=sys.stderr, flush=True)
        if isinstance(one, str):
            lines.append(one)
        else:
            comparisons.append(one)
    if sentence := agreement(comparisons, last):
        lines.append(sentence)
    table = [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}", *(row(one, last) for one in comparisons)]
    parts = [f"## {title}", *lines, *(["\n".join(table)] if comparisons else [])]
    return "\n\n".join(parts) + "\n"


def split(text: str) -> tuple[str, dict[str, str]]:
    """Return the head of a page, and its sections by their titles."""
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return head, {one.splitlines()[0].removeprefix("## "): one.rstrip("\n") + "\n" for one in sections}


def join(head: str, sections: Iterable[str]) -> str:
    """Return a page of a head and its sections."""
    return head + "\n".join(sections)


def show(title: str, content: Iterable[Comparison | str]) -> None:
    """Measure a section alone, and print the section."""
    with own_state():
        print(section(title, content))
