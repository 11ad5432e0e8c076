"""kubeconform, kube-score, checkov and the API server find no problems in rendered objects."""

import dataclasses
from pathlib import Path

import check_manifests
import pytest
from job_files import EVERYTHING
from on_cluster import make_job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.quantity import Quantity
from tfk8s.jobfile.loader import load, loads
from tfk8s.render import manifests, script_job, yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def job_files():
    files = [loads(EVERYTHING, "everything.yaml"), *map(load, sorted((ROOT / "examples").glob("*/*.yaml")))]
    return list(map(with_limits, files))


def with_limits(job_file):
    """Return a job file with limits, as scanners ask: all jobs name `cpu` and `memory`, and the file has `allow_to`."""
    small = {"cpu": Quantity.parse("250m"), "memory": Quantity.parse("1Gi")}
    jobs = (
        dataclasses.replace(job, **{name: getattr(job, name) or amount for name, amount in small.items()})
        for job in job_file.jobs
    )
    network = dataclasses.replace(job_file.network, allow_to=job_file.network.allow_to or ())
    return dataclasses.replace(job_file, jobs=tuple(jobs), network=network)


def script_of(stateful_set):
    """Return the Job of a script beside a master's StatefulSet, as if the API server had the StatefulSet."""
    master = {**stateful_set, "metadata": {**stateful_set["metadata"], "uid": "1"}}
    script = script_job.job("script", master, script_job.PodSettings(arguments=["a.py"], environment={"A": "b"}))
    script["metadata"]["namespace"] = "tests"
    return script


def test_scanners_find_nothing(job_files, tmp_path, capsys):
    files = []
    for job_file in job_files:
        objects = [*render.objects(dataclasses.replace(job_file, queue=None), "tests")]  # else none requests storage
        objects += [script_of(made) for made in objects if made["kind"] == "StatefulSet"][:1]  # the master's is first
        for made in objects:
            if made["kind"] in ("StatefulSet", "Job"):  # examples name an image by its tag, as people read it
                made["spec"]["template"]["spec"]["containers"][0]["image"] = loads(EVERYTHING, "everything.yaml").image
        files.append(tmp_path / f"{job_file.name}.yaml")
        files[-1].write_text(yaml.dump(objects))
    assert check_manifests.main([str(path) for path in files]) == 0, capsys.readouterr().out


def test_a_scanner_finds_what_is_there(tmp_path, capsys):
    objects = render.objects(make_job_file("bad"), "tests")
    objects[0]["spec"]["policyTypos"] = objects[0]["spec"].pop("policyTypes")
    (tmp_path / "bad.yaml").write_text(yaml.dump(objects))
    assert check_manifests.main([str(tmp_path / "bad.yaml")]) == 1
    assert "'policyTypos' not allowed" in capsys.readouterr().out


def test_the_api_server_takes_all_of_it_to_the_letter(job_files, client, namespace):
    for job_file in job_files:
        for made in render.objects(job_file, namespace):
            query = {"fieldManager": "t", "dryRun": "All", "fieldValidation": "Strict"}
            answer = client.send("PATCH", paths.path(made, namespace), query, made, "application/apply-patch+yaml")
            assert answer["metadata"]["labels"] == made["metadata"]["labels"]
    assert manifests.SCRIPT
