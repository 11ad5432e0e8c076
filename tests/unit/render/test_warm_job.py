"""The Job of a warm pod."""

from __future__ import annotations

from fakes.stateful_sets import stateful_sets

from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources
from tfk8s.render import script_job, warm_job

NONE, LARGE = ScriptResources(), ScriptResources(memory=Quantity.parse("9Gi"))
DIGEST = "0a"


def test_a_warm_pod_is_like_a_scripts_pod() -> None:
    master = stateful_sets()[0]
    warm = warm_job.job("demo-warm-1", master, 1800.0, LARGE)
    run = script_job.PodSettings(arguments=[], environment={"TFK8S_IDLE": "1800"}, resources=LARGE)
    own = script_job.job("demo-warm-1", master, run)
    assert warm_job.is_warm(warm)
    assert not script_job.is_script(warm)
    assert warm["metadata"]["ownerReferences"] == own["metadata"]["ownerReferences"]
    (container,), (script,) = (job["spec"]["template"]["spec"].pop("containers") for job in (warm, own))
    assert warm["spec"]["template"]["spec"] == own["spec"]["template"]["spec"]
    assert container == {**script, "command": ["python3", "-m", "tfk8s.sessions.warm.entrypoint"]}
    assert warm["spec"]["template"]["metadata"]["labels"] == {
        **own["spec"]["template"]["metadata"]["labels"], "app.kubernetes.io/component": "warm-scripts",
    }  # fmt: skip


def test_users_and_changed_clusters_have_other_warm_pods() -> None:
    master, other = stateful_sets()
    keys = {
        warm_job.key(*arguments)
        for arguments in (
            ("ann", master, None, DIGEST, NONE), ("bob", master, None, DIGEST, NONE),
            ("ann", other, None, DIGEST, NONE),
            ("ann", master, 60.0, DIGEST, NONE), ("ann", master, None, "0b", NONE),
            ("ann", master, None, DIGEST, LARGE),
        )
    }  # fmt: skip
    assert len(keys) == 6
    assert warm_job.key("ann", *[master, None, DIGEST, NONE]) in keys
    name = f"{warm_job.key('ann', master, None, DIGEST, NONE)}-1b2c"
    assert warm_job.name({"metadata": {"name": script_job.object_name("demo", name)}}) == name
    assert script_job.is_name(name)
