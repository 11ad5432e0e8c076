"""The clusters of several namespaces on one page."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.namespaces import AllNamespaces, Namespace
from job_files import job_file

from tfk8s.backends import select
from tfk8s.backends.options import BackendOptions
from tfk8s.errors import InvalidInput
from tfk8s.features.dashboard import here
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.features.dashboard.site import Dashboard
from tfk8s.sessions.forward import listen
from tfk8s.testing import FakeBackend
from unit.features.dashboard.test_site import TOKEN, get, stream

ONLY = 'you may not list the clusters of all namespaces: these are of namespace "team-a" alone'
FORBIDDEN = 'you may not list StatefulSets in namespace "team-b"'


@pytest.fixture
def a() -> Namespace:
    return Namespace("team-a")


@pytest.fixture
def b() -> Namespace:
    return Namespace("team-b")


@pytest.fixture
def chosen(a: Namespace, b: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[BackendOptions]:
    """The options by which back ends are chosen: this machine, two namespaces, or all."""
    options: list[BackendOptions] = []

    def choose(found: BackendOptions, spec: object = None) -> FakeBackend:
        options.append(found)
        if found.local:
            return FakeBackend(job_file())
        return {"team-a": a, "team-b": b}[found.namespace] if found.namespace else AllNamespaces(a, b)

    monkeypatch.setattr(select, "choose", choose)
    return options


def places(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["source"], one["name"]) for kind in sorted(found) for one in found[kind]["clusters"]]


def test_namespaces_are_lists_of_their_own(chosen: list[BackendOptions], a: Namespace, b: Namespace) -> None:
    shown = here.find(None, False, "kind", ["team-a", "team-b", "team-a"])
    assert [(option.context, option.namespace) for option in chosen] == [("kind", "team-a"), ("kind", "team-b")]
    kinds = {"clusters kubernetes/team-a", "clusters kubernetes/team-b"}
    with Dashboard(shown, listen(0), TOKEN) as page:
        for _ in range(3):  # whatever the number of browsers
            found = stream(page, ["overview"], kinds)
        assert places(found) == [("kubernetes/team-a", "mnist"), ("kubernetes/team-b", "mnist")]
        assert sorted(found[kind]["gpus"] != "" for kind in kinds) == [False, True]  # nodes belong to no namespace
        assert (a.listed, b.listed, a.counted + b.counted) == (1, 1, 1)
        status = stream(page, ["cluster kubernetes/team-b mnist"], {"cluster"})["cluster"]
        assert status["location"] == "namespace team-b of kind"
        assert (a.observers, b.observers) == (0, 1)
        for topic in ("cluster%20kubernetes%20mnist", "cluster%20kubernetes/team-c%20mnist", "cluster%20local%20mnist"):
            assert get(page, f"/{TOKEN}/stream?topic={topic}")[0] == 404


def test_a_forbidden_namespace_is_one_line_and_breaks_no_other(a: Namespace) -> None:
    sources = {"kubernetes/team-b": Namespace("team-b", FORBIDDEN), "kubernetes/team-a": a}
    kinds = {"clusters kubernetes/team-a", "clusters kubernetes/team-b"}
    with Dashboard(ShownClusters(sources), listen(0), TOKEN) as page:
        found = stream(page, ["overview"], kinds)
    refused, shown = found["clusters kubernetes/team-b"], found["clusters kubernetes/team-a"]
    assert refused == {"clusters": [], "problem": FORBIDDEN, "note": "", "gpus": ""}
    assert (places({"one": shown}), shown["problem"]) == ([("kubernetes/team-a", "mnist")], "")
    assert shown["gpus"] == "free: node-1 2 of 4 nvidia.com/gpu"


@pytest.mark.parametrize("context", [None, "kind"])
def test_all_namespaces_are_one_list(
    chosen: list[BackendOptions], a: Namespace, b: Namespace, context: str | None
) -> None:
    shown = here.find(None, False, context, [], all_namespaces=True)
    assert [option.local for option in chosen] == ([False] if context else [True, False])
    with Dashboard(shown, listen(0), TOKEN) as page:
        found = stream(page, ["overview"], {"clusters kubernetes"} | (set() if context else {"clusters local"}))
        expected = [("kubernetes/team-a", "mnist"), ("kubernetes/team-b", "mnist")]
        assert places(found) == expected + ([] if context else [("local", "mnist")])
        assert (a.listed, b.listed) == (0, 0)
        stream(page, ["cluster kubernetes/team-b mnist", "log kubernetes/team-b mnist worker/0"], {"cluster", "end"})
        assert [option.namespace for option in chosen if option.namespace] == ["team-b"]  # once for both topics
        assert (a.observers, b.observers) == (0, 1)
        assert get(page, f"/{TOKEN}/stream?topic=cluster%20kubernetes%20mnist")[0] == 404
        status, text = get(page, f"/{TOKEN}/stream?topic=cluster%20kubernetes/..%20mnist")
        assert (status, text) == (404, 'tfk8s: ".." is not a valid name of a namespace\n')


@pytest.mark.parametrize(("only", "note"), [("", ""), ("team-a", ONLY)])
def test_a_list_that_should_be_of_all_namespaces_says_that_it_is_not(a: Namespace, only: str, note: str) -> None:
    shown = ShownClusters({"kubernetes": AllNamespaces(a, only=only)}, of_namespace=lambda _: a)
    with Dashboard(shown, listen(0), TOKEN) as page:
        shown = stream(page, ["overview"], {"clusters kubernetes"})["clusters kubernetes"]
    assert (places({"one": shown}), shown["problem"]) == ([("kubernetes/team-a", "mnist")], "")
    assert shown["note"] == note


@pytest.mark.parametrize(("arguments", "keywords", "message"), [
    ((None, True, None, []), {"all_namespaces": True}, "--all-namespaces can't be combined with --local"),
    ((None, False, None, ["a"]), {"all_namespaces": True}, "--all-namespaces can't be combined with --namespace"),
    ((None, True, None, ["a", "b"]), {}, "--local can't be combined with --namespace"),
    (("mnist", False, None, ["a", "b"]), {}, '"mnist" may be in several namespaces'),
    (("mnist", False, None, []), {"all_namespaces": True}, '"mnist" may be in several namespaces'),
    ((None, False, None, ["team-a", "B"]), {}, '"B" is not a valid name of a namespace'),
    ((None, False, None, [""]), {}, '"" is not a valid name of a namespace'),
    ((None, False, None, ["", "a"]), {}, '"" is not a valid name of a namespace'),
    ((None, False, None, [f"n{number}" for number in range(17)]), {}, "17 namespaces are too many"),
])  # fmt: skip
def test_arguments_that_contradict_each_other(
    chosen: list[BackendOptions], arguments: Any, keywords: Any, message: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        here.find(*arguments, **keywords)
    assert str(raised.value).startswith(message)
