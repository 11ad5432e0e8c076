"""The page of a recording, as HTML that a parser reads."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

from traced import operation, scans, step, training_step, transfer

from tfk8s.features.timeline.chart import MAX_OPERATIONS, zoom_style
from tfk8s.features.timeline.page import MAX_STEPS, page
from tfk8s.features.timeline.steps import CallCount, Recording, TracedStep
from tfk8s.features.timeline.style import STYLE

_VOID = ("meta", "input", "br", "line")
EVIL = '<script>alert("w1")</script>'


class Page(HTMLParser):
    """The elements of a page, and its text; fails for elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            while self._open.pop() != tag:  # a paragraph, a row or a list item may end with the next element
                pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def titles(self, of_class: str) -> list[str]:
        """Return the texts that a pointer over the elements of a class shows."""
        return [
            entry.get("title") or "" for _, entry in self.elements if of_class in (entry.get("class") or "").split()
        ]  # fmt: skip


def recording(*steps: TracedStep, is_full: bool = False) -> Recording:
    calls = {one.call: CallCount(one.call, one.number, one.number - 2, 0.0842 * (one.number - 2)) for one in steps}
    return Recording(steps, calls, is_full)


def shown(*steps: TracedStep, is_full: bool = False) -> Page:
    return Page(page(recording(*steps, is_full=is_full), "train.py on mnist", 100))


def test_the_page_has_the_words_the_bars_and_the_transfers() -> None:
    found = shown(training_step())
    assert "62 % of the step waits for ps/0 to send w1 to worker/1 (16 MiB)" in found.text
    assert "A call without recording took 84.2 ms on average." in found.text
    assert found.titles("op") == [
        "w1/read (Identity): 2 µs, from 78 µs", "loss (AddN): 210 µs, from 790 µs", "mm0 (MatMul): 40 µs, from 310 µs",
        "mm1 (MatMul): 50 µs, from 710 µs",
    ]  # fmt: skip
    assert "w1 from ps/0, 16 MiB: 615 µs, from 85 µs" in found.titles("sent")
    idle = [78, 275, 400, 10, 85, 10, 650, 85, 10, 240]  # of ps/0, worker/0 and worker/1
    assert found.titles("idle") == [f"idle for {micros} µs" for micros in idle]
    assert len([tag for tag, _ in found.elements if tag == "line"]) == 4


def test_the_critical_path_is_marked() -> None:
    marked = filter(None, shown(training_step()).titles("path"))
    assert [text.split(":")[0] for text in marked] == [
        "w1/read (Identity)", "loss (AddN)", "mm1 from worker/1, 4 B", "mm1 (MatMul)", "w1 from ps/0, 16 MiB",
    ]  # fmt: skip


def test_the_page_loads_and_runs_nothing() -> None:
    text = page(recording(training_step(), step(call="init", number=1)), "train.py on mnist", 100)
    tags = {tag for tag, _ in Page(text).elements}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_names_of_users_are_text() -> None:
    evil = step(
        operation("a/0", EVIL, 0, 100, kind=EVIL), transfer(EVIL, "a/0", "b/0", 100, 900),
        operation("b/0", "y", 900, 1000, f"{EVIL}_S1"), call=EVIL, fed={EVIL: 4},
    )  # fmt: skip
    found = Page(page(recording(evil, training_step(EVIL)), EVIL, 1))
    assert "script" not in {tag for tag, _ in found.elements}
    assert f"80 % of the step waits for a/0 to send {EVIL} to b/0 (4 B)" in found.text
    assert found.titles("op")[0] == f"{EVIL} ({EVIL}): 100 µs, from 0 µs"


def test_large_steps_make_a_small_page() -> None:
    operations = [
        operation(f"worker/{n % 40}", f"tower_{n}/layer/MatMul", n, n + 30, kind="MatMul") for n in range(2_000)
    ]
    sent = [transfer(f"w{n}/read", "worker/0", f"worker/{n % 39 + 1}", n, n + 90) for n in range(500)]
    large = step(*operations, *sent, duration=3_000)
    steps = [dataclasses.replace(large, call=f"train_{n}") for n in range(MAX_STEPS + 2)]
    text = page(recording(*steps), "train.py on mnist", 100)
    assert len(text) < 3_000_000
    assert text.count("<details") == MAX_STEPS
    assert f"{2_000 - MAX_OPERATIONS:,} shorter operations are not drawn." in text


def test_a_step_of_many_tasks_is_scanned_as_often_as_one_of_two() -> None:
    def of(tasks: int) -> int:
        found = step(*[operation(f"worker/{n}", f"x{n}", 4 * n, 4 * n + 4) for n in range(tasks)])
        return scans(lambda counted: page(recording(counted), "train.py on mnist", 100), found)

    assert of(50) == of(2)


def test_each_rule_of_the_style_has_an_element() -> None:
    found = shown(training_step(), step(call="init")).elements
    elements = [("body", []), *[(tag, (entry.get("class") or "").split()) for tag, entry in found]]  # body is implicit
    rules = re.findall(r"([^{};]+)\{[^{}]*\}", re.sub(r"@media[^{]*\{", "", STYLE + zoom_style()))
    parts = [part for rule in rules for part in re.findall(r"[\w.-]+", re.sub(r"::?[\w-]+", "", rule))]
    assert {"li", "td.n", "i.sent.path", ".l-idle", "input.z4"} <= set(parts)
    for part in parts:
        wanted, *classes = part.split(".")
        assert any(wanted in ("", tag) and set(classes) <= set(its) for tag, its in elements), part
    assert set(re.findall(r"(--[\w-]+):", STYLE)) == set(re.findall(r"var\((--[\w-]+)\)", STYLE))


def test_limits_of_the_recording_are_said() -> None:
    found = shown(step(operation("a/0", "x", 0, 10), number=1), is_full=True).text
    assert "The script ran more: the recording was full." in found
    assert "This is the first call: it contains the preparation of the graph on the tasks." in found
    assert "No tensor went from one task to another." in found


def test_clocks_that_were_shifted_are_named() -> None:
    late = step(operation("worker/1", "x", 9000, 9100), duration=1000)
    assert "Shifted so that no tensor arrives before it is sent: worker/1 by -8.55 ms." in shown(late).text
