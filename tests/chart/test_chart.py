"""Tests that the Helm chart makes the same objects as `tfk8s render`, and rejects invalid job files."""

from __future__ import annotations

import base64
import gzip
import json
import shutil

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from job_files import EVERYTHING, OF_TASKS, PROGRAMS, as_json, job_files
from run_helm import CHART, KUBERNETES, helm, rejection, template
from zips import with_files

from tfk8s import __version__, render
from tfk8s.core import compact
from tfk8s.core.spec import JobFile
from tfk8s.errors import JobFileError
from tfk8s.jobfile.loader import load, loads
from tfk8s.render import manifests, pods

ROOT = CHART.parents[1]
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*/*.yaml"))
    if not any(job.program and job.program.is_script for job in load(path).jobs)  # only `up` can bring scripts
]
HEAD = "apiVersion: tfk8s.dev/v1\nname: mnist\nimage: tf:1\n"


def by_name(objects):
    return {(item["kind"], item["metadata"]["name"]): item for item in with_files(objects)}


def of_render(text, namespace=None):
    """Return the objects of `render`, with the labels of Helm's charts."""
    objects = render.objects(loads(text, "job.yaml"), namespace)
    for item in objects:
        item["metadata"]["labels"] |= {manifests.MANAGED_BY: "Helm", "helm.sh/chart": f"tfk8s-{__version__}"}
    return by_name(objects)


def of_helm(folder, text):
    """Return the objects of Helm."""
    file = folder / "job.yaml"
    file.write_text(text)
    return by_name(template(file, "--skip-tests", "--namespace", loads(text, "job.yaml").namespace or "default"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chart")


# ---- the same objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_objects_of_the_examples(example, folder):
    assert of_helm(folder, example.read_text()) == of_render(example.read_text())


TOGETHER = [
    PROGRAMS.replace("restart_on: never", "restart_on: failure").replace("scope: task", scope).replace("gpus: 1", gpus)
    for scope, gpus in (("scope: job", "gpus: 1"), ("scope: cluster", "cpu: 1"))
]
WITH_CHIEF = TOGETHER[1].replace("  old:", "  chief:").replace("  ps: {port: 2400}\n", "")
QUEUED = PROGRAMS.replace("idle: 30m", "idle: {suspend: 30m, remove: 7d}")
SLEEPING = QUEUED.replace("queue: gold\n", "")
CLOUDS = (
    PROGRAMS.replace("{claim: past}", place)
    for place in ('{bucket: "gs://team"}', '{bucket: "s3://team", endpoint: "http://x"}')
)


@pytest.mark.parametrize(
    "text",
    [EVERYTHING, PROGRAMS, SLEEPING, QUEUED, *CLOUDS, *TOGETHER, WITH_CHIEF],
    ids=["servers", "programs", "sleeping", "queued", "gs", "s3", "job", "cluster", "chief"],
)
def test_objects_of_a_job_file_with_every_key(folder, text):
    assert of_helm(folder, text) == of_render(text)


GANG = "jobs: {ps: {priority_class: high}, worker: {tasks: 2, program: [a], priority_class: high}}\nidle: 30m\n"
POD_GROUPS = ("--api-versions", "scheduling.k8s.io/v1beta1/PodGroup")


def test_objects_of_a_gang(folder):
    text = f"{HEAD}{GANG}gang: true\n"
    assert of_helm(folder, text) == of_render(text)
    assert ("PodGroup", "mnist") in of_render(text)


@pytest.mark.parametrize(
    ("more", "is_gang"),
    [("", True), ("gang: false", False), ("queue: a", False), ("pod: {schedulingGroup: {podGroupName: a}}", False)],
)
def test_chart_makes_a_gang_where_the_server_has_pod_groups(folder, more, is_gang):
    (folder / "job.yaml").write_text(f"{HEAD}{GANG}{more}\n")
    made = by_name(template(folder / "job.yaml", "--skip-tests", "--namespace", "default", *POD_GROUPS))
    assert made == of_render(f"{HEAD}{GANG}{more}\n{'gang: true' if is_gang else ''}\n")


def test_chart_brings_the_board_only_if_asked(folder):
    (folder / "job.yaml").write_text(f"{HEAD}jobs: {{a: 1}}")
    assert ("ConfigMap", "mnist-board") not in by_name(template(folder / "job.yaml"))
    board = by_name(template(folder / "job.yaml", "--set", "global.grafanaBoard=true"))["ConfigMap", "mnist-board"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["tfk8s.json"]) == json.loads((CHART / "board.json").read_text())


def test_chart_makes_no_gang_of_jobs_with_different_priorities(folder):
    (folder / "job.yaml").write_text(f"{HEAD}jobs: {{a: 1, b: {{priority_class: high}}}}")
    assert ("PodGroup", "mnist") not in by_name(template(folder / "job.yaml", *POD_GROUPS))


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def accepted(*texts: str) -> str | None:
    """Return the first text that tfk8s accepts."""
    for text in texts:
        try:
            job_file: JobFile = loads(text, "job.yaml")
        except JobFileError:
            continue
        if job_file.image:
            return text
    return None


@given(job_files(), st.booleans(), st.booleans())
@settings(
    max_examples=200, deadline=None, derandomize=True, database=None, phases=[Phase.generate],  # shrinking is slow
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_objects_of_generated_job_files(folder, data, flow, unicode):
    block = yaml.dump(data, Dumper=_Plain, allow_unicode=unicode, default_flow_style=flow, sort_keys=flow)
    text = accepted(block, as_json(data))
    assume(text is not None)
    assert of_helm(folder, text) == of_render(text)


# ---- invalid files--------------------------------------------------------------------------------------------------

LONG = "recommendationrankingtwotowerproductionwithwork"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: {worker: {taks: 2}}", "at '/jobs/worker': additional properties 'taks' not allowed"),
        ("jobs: {worker: 0}", "at '/jobs/worker': minimum: got 0, want 1"),
        ("jobs: {worker: {gpus: 1.5}}", "at '/jobs/worker/gpus': got number, want integer"),
        ("jobs: {worker: {memory: 4}}", "at '/jobs/worker/memory': minimum: got 4"),
        ("jobs: {worker: {accelerator: nvidia-l4}}", "at '/jobs/worker': missing property 'gpus'"),
        ("jobs: {worker: {volumes: [{path: /tmp, claim: a}]}}", "at '/jobs/worker/volumes/0/path'"),
        ("jobs: {my-job: 1}", "'my-job' does not match pattern '^[A-Za-z][A-Za-z0-9_]*$'"),
        ("jobs: {worker: 1}\nport:", "at '/port': got null, want integer"),
        ("jobs: {worker: 1}\nttl: 10x", "at '/ttl': '10x' does not match pattern"),
        ("jobs: {worker: 1}\nports: 80", "at '': additional properties 'ports' not allowed"),
        ("jobs: {evaluator: 1}", "jobs: an evaluator alone can't be a cluster: sessions never connect to it"),
        (
            "jobs: {worker: 1}\nmaster: chief",
            'master: there is no job "chief" that sessions can connect to; expected one of worker',
        ),
        (
            "jobs: {worker: 1, evaluator: 1}\nmaster: evaluator",
            'master: there is no job "evaluator" that sessions can connect to',
        ),
        ("jobs: {worker: ['a:1']}", "jobs.worker: these servers already run at the addresses in the job file"),
        (
            "jobs: {ABcdEFgHIjklmnopq: 1, aBCdEFGHIjklmnopq: 1}",
            'aBCdEFGHIjklmnopq" would have the same name in Kubernetes: "abcdefghijklmnopq-e4e4"',
        ),
        (f"jobs: {{{LONG}: 1}}", f'name: StatefulSet "mnist-{LONG}" would have 53 characters; at most 52 are allowed'),
        (
            "jobs: {worker: {volumes: [{path: /a/., claim: a}]}}\nvolumes: [{path: /a, claim: b}]",
            'volumes: two volumes of job "worker" are mounted at "/a/."',
        ),
        (f"jobs: {{worker: {{env: {{A: {'x' * 131070}}}}}}}", 'env: variable "A" is too long'),
        ("jobs: {worker: {env: {PYTHONPATH: {secret: a, key: b}}}}", "env: PYTHONPATH can't come from a Secret"),
        ("jobs: {worker: {priority: high}}", "at '/jobs/worker': additional properties 'priority' not allowed"),
        ("jobs: {worker: 1}\npod: {hostNetwork: true}", "at '/pod/hostNetwork': false schema"),
        (
            "jobs: {worker: 1}\nnamespace: ml",
            'namespace: the job file has "ml", but Helm uses "default": add --namespace ml',
        ),
        (
            "jobs: {worker: {program: [src/train.py]}}",
            'the script "src/train.py" to the pods: put it into the image, and write [python3, /PATH/train.py]',
        ),
        (
            "jobs: {ps: 1, worker: {program: [a]}}\nmaster: worker",
            'master: sessions can\'t connect to a task of "worker", which runs a program',
        ),
        (
            "jobs: {a: {program: [a], preload: [b]}}",
            "jobs.a.preload: preload has no effect on a job that runs a program",
        ),
        ("jobs: {a: {tf1: true}}", "jobs.a.tf1: tf1 has no effect on a job without a program"),
        ("jobs: {a: {program: [sh], tf1: true}}", "jobs.a.tf1: tf1 needs a program of Python"),
        ("jobs: {a: 1}\nidle: {suspend: 1d, remove: 24h}", "idle: the cluster would be removed before it is suspended"),
        ("jobs: {a: 1}\nrun: {}", "run: a run needs a job with a program"),
        ("jobs: {a: {program: [a]}}\nrun: {success: a/1}", 'run.success: "a/1" names no program'),
        ("jobs: {a: {program: [a]}}\nrun: {success: b}", 'run.success: "b" names no program'),
        ("jobs: {a: 1}\ngang: true\nqueue: b", "gang: Kueue admits all tasks of a cluster in a queue together"),
        ("jobs: {a: 1, b: {priority_class: c}}\ngang: true", "gang: the jobs differ in priority or scheduler"),
        ("jobs: {a: 1}\npod: {containers: [{name: p}, {name: p}]}", 'pod: "p" is given twice in containers'),
    ],
)
def test_error_of_an_invalid_file(folder, text, message):
    file = folder / "bad.yaml"
    file.write_text(HEAD + text)
    assert message in rejection(file)


def test_job_without_an_image_is_rejected(folder):
    file = folder / "bad.yaml"
    file.write_text("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {image: a}, ps: 1}")
    assert 'image: job "ps" has no image' in rejection(file)


# ---- the chart itself ----------------------------------------------------------------------------------------------


def test_helm_lint(folder):
    file = folder / "everything.yaml"
    file.write_text(EVERYTHING)
    for job_file in (*EXAMPLES, file):
        assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--values", job_file, *KUBERNETES).stdout


def test_package_is_complete(folder):
    helm("package", CHART, "--destination", folder)
    packed = folder / f"tfk8s-{__version__}.tgz"
    unpacked = template(EXAMPLES[0], "--skip-tests", chart=packed)
    assert by_name(unpacked) == of_render(EXAMPLES[0].read_text())


def test_a_chart_without_the_zip_is_rejected(folder):
    shutil.copytree(CHART, folder / "bare", ignore=shutil.ignore_patterns("*.zip"))
    words = ["template", "release", folder / "bare", "--values", EXAMPLES[0], *KUBERNETES]
    assert "the chart lacks files/tfk8s.zip, which `make update` writes" in helm(*words, check=False).stderr


def test_chart_can_be_a_dependency_several_times(folder):
    parent = folder / "parent"
    shutil.copytree(CHART, parent / "charts" / "tfk8s")
    dependencies = [{"name": "tfk8s", "version": __version__, "alias": f"cluster{number}"} for number in range(2)]
    metadata = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    job_files = [yaml.safe_load(path.read_text()) for path in EXAMPLES[:2]]
    (parent / "values.yaml").write_text(yaml.safe_dump({"cluster0": job_files[0], "cluster1": job_files[1]}))
    objects = template(parent / "values.yaml", chart=parent)
    assert {item["metadata"]["name"] for item in objects} > {job_file["name"] for job_file in job_files}


def test_helm_can_store_a_release_of_four_clusters(folder):
    """Helm stores a release as JSON, compressed, in base64: encodeRelease in pkg/storage/driver/util.go.

    The charts that a chart depends on are not stored (`dependencies` in pkg/chart/v2/chart.go is private).
    """
    objects = [*template(EXAMPLES[0])] * 4
    stored = base64.b64encode(gzip.compress(json.dumps(yaml.safe_dump_all(objects)).encode()))
    assert len(stored) < 1_000_000  # of 1,048,576; the rest is for the values


def test_helm_test_runs_a_session_like_a_script(folder):
    file = folder / "everything.yaml"
    file.write_text(EVERYTHING)
    objects = by_name(template(file))
    test, master = objects["Pod", "everything-test"], objects["StatefulSet", "everything-chief"]
    labels = test["metadata"]["labels"]
    assert objects["NetworkPolicy", "everything"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert labels[manifests.COMPONENT] == manifests.SCRIPT
    pod = master["spec"]["template"]["spec"]
    assert all(test["spec"][key] == pod[key] for key in ("securityContext", "automountServiceAccountToken", "volumes"))
    (container,), (server,) = test["spec"]["containers"], pod["containers"]
    sizes = compact.format_jobs(pods.sizes(load(file)))
    assert all(container[key] == server[key] for key in ("image", "securityContext", "volumeMounts"))
    assert container["env"] == [*server["env"], {"name": "TFK8S_JOBS", "value": sizes}]
    assert container["command"] == ["python3", "-c", (CHART / "session.py").read_text()]


def test_helm_test_has_nothing_that_belongs_to_tasks_alone(folder):
    file = folder / "of-tasks.yaml"
    file.write_text(OF_TASKS)
    assert of_helm(folder, OF_TASKS) == of_render(OF_TASKS)
    objects = by_name(template(file))
    (lifetime,) = (item["spec"]["template"] for (kind, _), item in objects.items() if kind == "Job")
    test = objects["Pod", "demo-test"]
    added = {"activeDeadlineSeconds", "initContainers"}
    assert set(test["spec"]) - added == set(lifetime["spec"]) - {"serviceAccountName"}
    assert test["spec"]["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}}
    names = {*test["metadata"]["labels"], *test["metadata"]["annotations"]}
    assert not [name for name in names if name.startswith("kueue.x-k8s.io/")]


def test_notes_have_the_next_commands(folder):
    notes = helm(
        "install", "digits", CHART, "--values", ROOT / "examples" / "tutorial" / "cluster.yaml", "--dry-run=client"
    ).stdout
    assert "tfk8s submit tutorial --namespace default SCRIPT.py" in notes
    assert "helm test digits --namespace default" in notes
