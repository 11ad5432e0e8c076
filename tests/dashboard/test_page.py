"""What people see on the page, and do there."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import HOSTILE, Show, Training, Window
from fakes.namespaces import AllNamespaces, Namespace
from job_files import job_file
from playwright.sync_api import expect

from tfk8s.core.status import Phase
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.testing import FakeBackend, change


def is_shown(window: Window, tasks: int) -> None:
    """Wait until all tasks and the curves are there."""
    expect(window.page.locator("#tasks tbody tr")).to_have_count(tasks)
    expect(window.page.locator("#charts figure").first).to_be_visible()


def fits(window: Window) -> bool:
    """Return whether nothing makes the page wider than the window."""
    return bool(window.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("size", "width"), [("wide", 1500), ("narrow", 360)])
def test_a_cluster_that_trains(show: Show, training: Training, scheme: str, size: str, width: int) -> None:
    window = show(training, color_scheme=scheme, viewport={"width": width, "height": 900})
    is_shown(window, tasks=6)
    for title in ("CPU (cores)", "Memory (MiB)", "In (KiB/s)", "GPU (%)", "Steps a second", "loss"):
        expect(window.page.locator("figcaption", has_text=title)).to_be_visible()
    expect(window.page.locator("#facts")).to_contain_text("far slower than the others worker/3")
    expect(window.page.locator("#connection")).to_have_text("live")
    expect(window.page.locator("#events tbody tr")).to_have_count(3)
    window.picture(f"{scheme}-{size}")
    assert fits(window)
    back = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
    assert window.problems == []


def test_texts_of_others_stay_texts(show: Show, training: Training) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    window.page.get_by_role("button", name="show the log of worker/0").click()
    expect(window.page.locator("#lines")).to_contain_text(f"step 99 {HOSTILE}")
    assert window.page.title() == "mnist: Running · tfk8s"
    assert window.page.locator("img").count() == 0
    assert window.problems == []


def test_the_log_of_a_script(show: Show, training: Training) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    window.page.get_by_role("button", name="show the log of script-4e9c21").click()
    expect(window.page.locator("#lines")).to_contain_text("script-4e9c21 runs")
    assert window.page.url.endswith("#local/mnist/script-4e9c21")
    assert window.problems == []


def test_the_keyboard_is_enough(show: Show, training: Training) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    page = window.page

    def press_until(role: str, name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.get_by_role(role, name=name).and_(page.locator(":focus")).count():  # type: ignore[arg-type]
                return
        raise AssertionError(f"Tab never reaches {name}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the cluster"
    press_until("searchbox", "Filter")
    page.keyboard.type("worker/2")
    expect(page.locator("#tasks tbody tr")).to_have_count(1)
    press_until("button", "show the log of worker/2")
    page.keyboard.press("Enter")
    expect(page.locator("#log-name")).to_have_text("Log of worker/2")
    expect(page.locator("#lines")).to_contain_text("step 99")
    assert page.url.endswith("#local/mnist/worker%2F2")
    assert window.problems == []


def test_the_focus_stays_in_the_list_of_clusters(show: Show) -> None:
    window = show(Training(job_file(chief=1, worker=4), job_file("other")), viewport={"width": 1500, "height": 900})
    link = window.page.get_by_role("link", name="other")
    link.focus()
    window.page.evaluate(
        "new MutationObserver(() => { document.body.dataset.rebuilt = ''; }).observe("
        "document.getElementById('clusters'), { childList: true })"
    )
    window.page.locator("body[data-rebuilt]").wait_for(timeout=30_000)
    expect(link).to_be_focused()
    window.page.keyboard.press("Enter")
    expect(window.page.locator("#name")).to_have_text("other")


@pytest.mark.parametrize("fragment", ["local/%", "nowhere/x", "local/nobody"])
def test_a_wrong_link_leaves_the_list(show: Show, training: Training, fragment: str) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    url = window.page.url.partition("#")[0]
    window.page.goto("about:blank")
    window.page.goto(f"{url}#{fragment}")
    expect(window.page.get_by_role("link", name="mnist")).to_be_visible(timeout=15_000)


def test_tasks_are_sorted(show: Show, training: Training) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    names = window.page.locator("#tasks tbody td:first-child")
    window.page.get_by_role("button", name="Name").click()
    expect(names.first).to_have_text("chief/0")
    window.page.get_by_role("button", name="Name").click()
    expect(names.first).to_have_text("worker/3")


def test_a_thousand_tasks(show: Show) -> None:
    window = show(Training(job_file(chief=1, worker=999)), viewport={"width": 1500, "height": 900})
    is_shown(window, tasks=1001)
    expect(window.page.locator("#drawn")).to_have_text("10 of 1001 are drawn: the filter chooses others")
    window.picture("1000-tasks")
    window.page.get_by_label("Filter").fill("worker/77")
    expect(window.page.locator("#tasks tbody tr")).to_have_count(11)
    assert window.problems == []


@pytest.mark.parametrize("are_all", [False, True])
def test_clusters_of_several_namespaces(show: Show, are_all: bool) -> None:
    teams = [Namespace("team-a"), Namespace("team-b")]
    named = {f"kubernetes/{one.namespace}": one for one in teams}
    forbidden = Namespace("team-c", 'you may not list StatefulSets in namespace "team-c"')
    shown = (
        ShownClusters({"kubernetes": AllNamespaces(*teams)}, of_namespace=lambda name: named[f"kubernetes/{name}"])
        if are_all
        else ShownClusters({**named, "kubernetes/team-c": forbidden})
    )
    window = show(shown, viewport={"width": 1500, "height": 900})
    page = window.page
    expect(page.get_by_role("link", name="mnist")).to_have_count(2)
    page.get_by_role("link", name="namespace team-b").click()
    expect(page.locator("#facts")).to_contain_text("where namespace team-b of kind")
    expect(page.locator("#tasks tbody tr")).to_have_count(3)
    expect(page.locator("[aria-current=page]")).to_contain_text("namespace team-b")
    assert page.url.endswith("#kubernetes/team-b/mnist")
    page.get_by_role("button", name="show the log of worker/1").click()
    expect(page.locator("#log-name")).to_have_text("Log of worker/1")
    assert page.url.endswith("#kubernetes/team-b/mnist/worker%2F1")
    page.reload()
    expect(page.locator("#facts")).to_contain_text("namespace team-b")
    expect(page.locator("#log-name")).to_have_text("Log of worker/1")
    problem = "" if are_all else f"kubernetes/team-c: {forbidden.refusal}"
    expect(page.locator("#sources")).to_contain_text(problem)
    expect(page.locator("#sources")).to_contain_text("free: node-1 2 of 4 nvidia.com/gpu")
    window.picture(f"namespaces-{'all' if are_all else 'named'}")
    assert window.problems == []


def test_a_list_that_is_limited_to_a_namespace(show: Show) -> None:
    team = Namespace("team-a")
    shown = ShownClusters({"kubernetes": AllNamespaces(team, only="team-a")}, of_namespace=lambda _: team)
    page = show(shown).page
    expect(page.get_by_role("link", name="mnist")).to_have_count(1)
    limit = 'you may not list the clusters of all namespaces: these are of namespace "team-a" alone'
    expect(page.locator("#sources")).to_contain_text(limit)


def test_no_cluster(show: Show) -> None:
    window = show(FakeBackend())
    expect(window.page.locator("#empty")).to_have_text(
        "No cluster runs. `tfk8s up` starts one, and this page shows it."
    )
    window.picture("empty")
    assert window.problems == []


def test_a_cluster_that_failed(show: Show) -> None:
    backend = FakeBackend(job_file())
    backend.updates = [change("worker/0", phase=Phase.FAILED, reason="exited with 1: ImportError: no module named x")]
    window = show(backend)
    expect(window.page.locator("#facts")).to_contain_text("phase Failed")
    expect(window.page.locator("#tasks .bad")).to_have_text("Failed")
    window.picture("failed")
    assert window.problems == []


def test_a_cluster_that_is_removed(show: Show, training: Training) -> None:
    window = show(training)
    is_shown(window, tasks=6)
    training.delete("mnist")
    expect(window.page.locator("#problem")).to_contain_text('there is no cluster "mnist"')


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_is_refused(show: Show, training: Training) -> None:
    window = show(training)
    url = window.page.url.partition("#")[0]
    found = subprocess.run(
        ["curl", "--silent", "--max-time", "20", url], user=65534, group=65534, extra_groups=[], capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert (found.stdout, found.returncode) != ("", 0)
    assert "<html" not in found.stdout
