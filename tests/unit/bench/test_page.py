"""The page of results: its Markdown, and the comparison with the run before."""

from __future__ import annotations

import page
import pytest
from measure import Bound, Comparison, Spread, compare

HEAD = "# Results\n\n| machine | 2 cores |\n\n"


def up(*seconds: float) -> Comparison:
    """Return a comparison with a reference of one second."""
    return compare("`up`", "by hand", "s", seconds, [1.0] * len(seconds), Bound(highest=0.5))


def memory(*sizes: float) -> Comparison:
    """Return a comparison with a reference of 1 GB."""
    return compare("RAM", "by hand", "B", sizes, [1e9] * len(sizes), Bound(highest=4e8, unit="B"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123, "0.0123"),
        (0.98765, "0.988"),
        (0.9996, "1.00"),
        (1.0, "1.00"),
        (63.04, "63.0"),
        (158.9, "159"),
        (1893.2, "1,893"),
        (0, "0"),
    ],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert page.number(value) == text


@pytest.mark.parametrize(
    ("spread", "unit", "text"),
    [
        (Spread(0.063, 0.06, 0.07), "s", "63.0 ms (60.0–70.0)"),
        (Spread(1.5, 0.9, 12.0), "s", "1.50 s (0.900–12.0)"),
        (Spread(3e-4, 2e-4, 4e-4), "s", "300 µs (200–400)"),
        (Spread(4e8, 3e8, 2e9), "B", "400 MB (300–2,000)"),
        (Spread(1893, 1800, 1950), "steps/s", "1,893 steps/s (1,800–1,950)"),
    ],
)
def test_a_spread_has_the_unit_of_its_median(spread: Spread, unit: str, text: str) -> None:
    assert page.spread_text(spread, unit) == text


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (Bound(highest=1.4), "≤ 1.4 ×"),
        (Bound(lowest=0.9), "≥ 0.9 ×"),
        (Bound(0.98, 1.02), "0.98–1.02 ×"),
        (Bound(highest=0.12, unit="s"), "≤ 120 ms"),
        (Bound(highest=3.5, unit="s"), "≤ 3.5 s"),
        (Bound(highest=1e9, unit="B"), "≤ 1 GB"),
    ],
)
def test_limits_have_their_unit(bound: Bound, text: str) -> None:
    assert page.limits(bound) == text


def test_a_section_has_its_notes_above_its_table() -> None:
    assert page.section("Start", ["kubectl is not installed.", up(0.4, 0.2), memory(5e8)]) == (
        "## Start\n"
        "\n"
        "kubectl is not installed.\n"
        "\n"
        "| measured | against | ratio | bound | tfk8s | the other | turns | ratio, run before |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| `up` | by hand | 0.300 × (0.200–0.400) | ≤ 0.5 × | 300 ms (200–400) | 1.00 s (1.00–1.00) | 2 |  |\n"
        "| RAM | by hand | 0.500 × (0.500–0.500) | ≤ 400 MB, missed | 500 MB (500–500) | 1.00 GB (1.00–1.00) | 1 |  |\n"
    )


def test_a_section_without_figures_has_no_table() -> None:
    assert page.section("Kubernetes", ["Not measured: there is no kubectl."]) == (
        "## Kubernetes\n\nNot measured: there is no kubectl.\n"
    )


def test_ratios_that_agree_are_counted_and_stand_beside() -> None:
    before = page.section("Start", [up(0.4, 0.2), memory(5e8)])
    after = page.section("Start", [up(0.3, 0.6), memory(5e8)], before).splitlines()
    assert after[2] == "All 2 ratios agree with the run before."
    assert after[6].endswith("| 2 | 0.300 × (0.200–0.400) |")


def test_ratios_that_do_not_agree_are_named() -> None:
    before = page.section("Start", [up(0.4, 0.2), memory(5e8)])
    assert page.section("Start", [up(0.5, 0.6), memory(5e8)], before).splitlines()[2] == (
        "1 of 2 ratios agree with the run before. These do not: `up`, against by hand."
    )


def test_ratios_agree_if_they_differ_in_digits_that_no_page_has() -> None:
    before = page.section("Start", [memory(5.001e8)])
    assert page.section("Start", [memory(5.004e8)], before).splitlines()[2] == "All 1 ratios agree with the run before."


def test_what_the_run_before_had_not_is_not_compared() -> None:
    after = page.section("Start", [up(0.5), memory(5e8)], page.section("Start", [memory(5e8)]))
    assert after.splitlines()[2] == "All 1 ratios agree with the run before."


def test_a_page_is_split_into_what_it_was_joined_of() -> None:
    sections = {title: page.section(title, [up(0.4)]) for title in ("Start", "Steps")}
    assert page.split(page.join(HEAD, sections.values())) == (HEAD, sections)
    assert page.split("") == ("", {})


def test_large_ratios_are_read_again() -> None:
    comparison = compare("work", "other work", "steps/s", [5000.0], [2.0])
    assert page.ratios(page.section("Steps", [comparison])) == {("work", "other work"): Spread(2500, 2500, 2500)}
