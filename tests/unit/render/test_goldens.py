"""manifests/ holds the examples as `render` prints them; TFK8S_UPDATE=1 writes them again."""

import os
from pathlib import Path

import pytest

from tfk8s import render
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import load
from tfk8s.render import rbac, yaml

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))


def manifest(job_file):
    return ROOT / "manifests" / f"{job_file.name}.yaml"


def require_equal(path, text):
    if os.environ.get("TFK8S_UPDATE"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_manifests_are_the_rendered_examples(example):
    job_file = load(example)
    text = (
        f"# {example.relative_to(ROOT)} as Kubernetes objects. Made by `make update`; kept equal by a test.\n"
        + render.text(job_file)
    )
    require_equal(manifest(job_file), text)


def test_the_roles_are_those_that_the_command_prints():
    note = "# The output of `tfk8s roles`. Made by `make update`; kept equal by a test.\n"
    require_equal(ROOT / "manifests" / "roles.yaml", note + yaml.dump(rbac.roles()))


def test_nothing_else_is_there():
    assert {path.name for path in (ROOT / "manifests").iterdir()} == {
        "roles.yaml",
        *(manifest(load(example)).name for example in EXAMPLES),
    }


def test_a_job_without_an_image_is_refused():
    with pytest.raises(InvalidInput, match="job ps has no image to run in"):
        render.text(JobFile(name="a", master="worker", jobs=(Job(name="worker", image="i"), Job(name="ps"))))


def test_a_cluster_that_runs_already_is_refused():
    with pytest.raises(InvalidInput, match="run already"):
        render.text(JobFile(name="a", master="worker", jobs=(Job(name="worker", addresses=("a:1",)),)))
