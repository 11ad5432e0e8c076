"""The Helm chart: from a job file it makes what `tfk8s render` prints, and what it refuses it names."""

from __future__ import annotations

import shutil

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from job_files import EVERYTHING, as_json, job_files
from run_helm import CHART, KUBERNETES, helm, refusal, template

from tfk8s import __version__, render
from tfk8s.core.spec import JobFile
from tfk8s.errors import JobFileError
from tfk8s.jobfile.loader import loads
from tfk8s.render import manifests

ROOT = CHART.parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
HEAD = "apiVersion: tfk8s.dev/v1\nname: mnist\nimage: tf:1\n"


def by_name(objects):
    return {(made["kind"], made["metadata"]["name"]): made for made in objects}


def of_render(text, namespace=None):
    """Return what `render` prints, with the labels that Helm's charts have."""
    objects = render.objects(loads(text, "job.yaml"), namespace)
    for made in objects:
        made["metadata"]["labels"] |= {manifests.MANAGED_BY: "Helm", "helm.sh/chart": f"tfk8s-{__version__}"}
    return by_name(objects)


def of_helm(folder, text):
    """Return what Helm makes of the same file."""
    file = folder / "job.yaml"
    file.write_text(text)
    return by_name(template(file, "--skip-tests", "--namespace", loads(text, "job.yaml").namespace or "default"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chart")


# ---- the same objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_objects_of_the_examples_are_those_of_render(example, folder):
    assert of_helm(folder, example.read_text()) == of_render(example.read_text())


def test_the_objects_of_a_job_file_that_says_everything_are_those_of_render(folder):
    assert of_helm(folder, EVERYTHING) == of_render(EVERYTHING)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def accepted(*texts: str) -> str | None:
    """Return the first that tfk8s accepts."""
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
    max_examples=200, deadline=None, derandomize=True, database=None, phases=[Phase.generate],  # not shrink: minutes
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_the_objects_of_generated_job_files_are_those_of_render(folder, data, flow, unicode):
    written = yaml.dump(data, Dumper=_Plain, allow_unicode=unicode, default_flow_style=flow, sort_keys=flow)
    text = accepted(written, as_json(data))
    assume(text is not None)
    assert of_helm(folder, text) == of_render(text)


# ---- refusals ------------------------------------------------------------------------------------------------------

LONG = "recommendationrankingtwotowerproductionwithwork"


@pytest.mark.parametrize(
    ("text", "words"),
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
        ("jobs: {worker: ['a:1']}", "jobs.worker: these servers run already: the job file gives their addresses"),
        (
            "jobs: {ABcdEFgHIjklmnopq: 1, aBCdEFGHIjklmnopq: 1}",
            'jobs: "ABcdEFgHIjklmnopq" and "aBCdEFGHIjklmnopq" would both be "abcdefghijklmnopq-e4e4" in Kubernetes',
        ),
        (f"jobs: {{{LONG}: 1}}", f'name: StatefulSet "mnist-{LONG}" would have 53 characters, of at most 52'),
        (
            "jobs: {worker: {volumes: [{path: /a/., claim: a}]}}\nvolumes: [{path: /a, claim: b}]",
            'volumes: two of job worker are mounted at "/a/."',
        ),
        (f"jobs: {{worker: {{env: {{A: {'x' * 131070}}}}}}}", 'env: variable "A" is too long'),
        (
            "jobs: {worker: 1}\nnamespace: ml",
            'namespace: the job file says "ml", and Helm "default": add --namespace ml',
        ),
    ],
)
def test_what_is_refused_names_the_field(folder, text, words):
    file = folder / "bad.yaml"
    file.write_text(HEAD + text)
    assert words in refusal(file)


def test_a_job_without_an_image_is_refused(folder):
    file = folder / "bad.yaml"
    file.write_text("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {image: a}, ps: 1}")
    assert "image: job ps has no image to run in" in refusal(file)


# ---- the chart itself ----------------------------------------------------------------------------------------------


def test_helm_finds_no_fault_with_it(folder):
    file = folder / "everything.yaml"
    file.write_text(EVERYTHING)
    for job_file in (*EXAMPLES, file):
        assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--values", job_file, *KUBERNETES).stdout


def test_its_package_has_all_that_it_needs(folder):
    helm("package", CHART, "--destination", folder)
    packed = folder / f"tfk8s-{__version__}.tgz"
    unpacked = template(EXAMPLES[0], "--skip-tests", chart=packed)
    assert by_name(unpacked) == of_render(EXAMPLES[0].read_text())


def test_another_chart_may_depend_on_it_several_times(folder):
    parent = folder / "parent"
    shutil.copytree(CHART, parent / "charts" / "tfk8s")
    needed = [{"name": "tfk8s", "version": __version__, "alias": f"cluster{number}"} for number in range(2)]
    described = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": needed}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(described))
    job_files = [yaml.safe_load(path.read_text()) for path in EXAMPLES[:2]]
    (parent / "values.yaml").write_text(yaml.safe_dump({"cluster0": job_files[0], "cluster1": job_files[1]}))
    made = template(parent / "values.yaml", chart=parent)
    assert {one["metadata"]["name"] for one in made} > {one["name"] for one in job_files}


def test_its_test_runs_a_session_beside_the_tasks_under_the_same_rules(folder):
    file = folder / "everything.yaml"
    file.write_text(EVERYTHING)
    made = by_name(template(file))
    test, master = made["Pod", "everything-test"], made["StatefulSet", "everything-chief"]
    labels = test["metadata"]["labels"]
    assert made["NetworkPolicy", "everything"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert labels[manifests.COMPONENT] == manifests.SCRIPT
    pod = master["spec"]["template"]["spec"]
    assert all(test["spec"][key] == pod[key] for key in ("securityContext", "automountServiceAccountToken", "volumes"))
    (container,), (server,) = test["spec"]["containers"], pod["containers"]
    assert all(container[key] == server[key] for key in ("image", "env", "securityContext", "volumeMounts"))
    assert container["command"] == ["python3", "-c", (CHART / "session.py").read_text()]


def test_its_notes_say_what_comes_next(folder):
    said = helm(
        "install", "digits", CHART, "--values", ROOT / "examples" / "tutorial" / "cluster.yaml", "--dry-run=client"
    ).stdout
    assert "tfk8s submit tutorial --namespace default SCRIPT.py" in said
    assert "helm test digits --namespace default" in said
