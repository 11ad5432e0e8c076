"""The requests and limits of scripts, within a namespace's rules."""

from __future__ import annotations

import pytest
from fakes.stateful_sets import stateful_sets
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources, parse_resources
from tfk8s.render import script_job, script_resources
from tfk8s.render.pods import Object
from tfk8s.render.script_resources import NamespaceRule

SMALL, NONE, GREAT = {"cpu": "1", "memory": "600Mi"}, dict[str, str](), {"cpu": "32", "memory": "64Gi"}


def rules(**each: dict[str, str]) -> dict[str, NamespaceRule]:
    return {
        name.replace("_", "-"): NamespaceRule(**{key: Quantity.parse(text) for key, text in amounts.items()})
        for name, amounts in each.items()
    }


MAXIMUM = rules(cpu={"maximum": "1"}, memory={"maximum": "1Gi"}, ephemeral_storage={"maximum": "1Gi"})


@pytest.mark.parametrize(
    ("named", "master", "allowed", "cpu", "memory", "storage"),
    [
        ("", NONE, {}, "50m", "512Mi", "128Mi to 4Gi"),
        ("", SMALL, {}, "50m to 1", "512Mi to 600Mi", "128Mi to 4Gi"),
        ("", GREAT, {}, "50m to 4", "512Mi to 64Gi", "128Mi to 4Gi"),
        ("", GREAT, MAXIMUM, "50m to 1", "512Mi to 1Gi", "128Mi to 1Gi"),
        ("", SMALL, MAXIMUM, "50m to 1", "512Mi to 600Mi", "128Mi to 1Gi"),
        ("", NONE, MAXIMUM, "50m to 1", "512Mi to 1Gi", "128Mi to 1Gi"),
        ("", {"memory": "256Mi"}, {}, "50m", "256Mi to 256Mi", "128Mi to 4Gi"),
        ("", NONE, rules(memory={"default": "256Mi", "maximum": "1Gi"}), "50m", "256Mi to 256Mi", "128Mi to 4Gi"),
        ("", NONE, rules(cpu={"minimum": "100m"}), "100m", "512Mi", "128Mi to 4Gi"),
        ("", GREAT, rules(cpu={"ratio": "10"}), "50m to 500m", "512Mi to 64Gi", "128Mi to 4Gi"),
        ("cpu=200m,memory=2Gi", NONE, {}, "200m to 1", "2Gi to 2Gi", "128Mi to 4Gi"),
        ("cpu=200m,memory=2Gi", NONE, rules(cpu={"maximum": "500m"}), "200m to 500m", "2Gi to 2Gi", "128Mi to 4Gi"),
        ("cpu=8", SMALL, {}, "8 to 8", "512Mi to 600Mi", "128Mi to 4Gi"),
        ("memory=2Gi,shm=1Gi", NONE, {}, "50m", "3Gi to 3Gi", "128Mi to 4Gi"),
        ("shm=1Gi", GREAT, {}, "50m to 4", "1536Mi to 65Gi", "128Mi to 4Gi"),
        ("ephemeral_storage=20Gi", NONE, {}, "50m", "512Mi", "20Gi to 20Gi"),
    ],
)
def test_requests_and_limits(
    named: str, master: dict[str, str], allowed: dict[str, NamespaceRule], cpu: str, memory: str, storage: str
) -> None:
    made = script_resources.requirements(parse_resources(named), master, allowed)
    found = {
        name: f"{request} to {made['limits'][name]}" if name in made["limits"] else request
        for name, request in made["requests"].items()
    }
    assert found == {"cpu": cpu, "memory": memory, "ephemeral-storage": storage}


AMOUNTS = st.sampled_from(["50m", "100m", "1", "2", "7", "64"])


@given(master=AMOUNTS, maximum=st.none() | AMOUNTS, ratio=st.none() | st.sampled_from(["2", "10"]))
def test_no_default_is_above_what_is_allowed(master: str, maximum: str | None, ratio: str | None) -> None:
    rule = {key: text for key, text in (("maximum", maximum), ("ratio", ratio)) if text}
    made = script_resources.requirements(ScriptResources(), {"cpu": master}, rules(cpu=rule))
    request, limit = (Quantity.parse(made[kind]["cpu"]).value for kind in ("requests", "limits"))
    assert request <= limit <= min(Quantity.parse(bound).value for bound in (master, "4", maximum or "4"))
    assert not ratio or limit <= request * Quantity.parse(ratio).value


def pod(text: str, master: int = 0) -> Object:
    run = script_job.PodSettings(arguments=[], environment={}, resources=parse_resources(text))
    spec: Object = script_job.job("a", stateful_sets()[master], run)["spec"]["template"]["spec"]
    return spec


def test_folders_have_the_named_sizes() -> None:
    made = pod("ephemeral_storage=20Gi,shm=2Gi")
    volumes = {volume["name"]: volume.get("emptyDir") for volume in made["volumes"]}
    assert volumes["work"] == volumes["scratch"] == {"sizeLimit": "20Gi"}
    assert volumes["shm"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in made["containers"][0]["volumeMounts"]
    assert "/dev/shm" not in {mount["mountPath"] for mount in pod("")["containers"][0]["volumeMounts"]}


def test_the_compact_form() -> None:
    everything = "cpu=2,ephemeral_storage=20Gi,gpus=0,memory=4Gi,shm=1Gi"
    assert str(parse_resources(f"{everything},later=1")) == everything
    assert not parse_resources("")
    assert parse_resources("gpus=0")
    assert str(parse_resources("cpu=1").over(parse_resources("cpu=2,memory=1Gi"))) == "cpu=1,memory=1Gi"
    with pytest.raises(ValueError, match="not a quantity"):
        parse_resources("cpu=much")
