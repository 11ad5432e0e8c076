"""kubeconform -strict, kube-score, checkov and the API server itself find no fault with what is rendered."""

from pathlib import Path

import check_manifests
import pytest
from on_cluster import make_job_file

from tfk8s import manifests, rendered, scriptjobs, yamltext
from tfk8s.backends.kubernetes import paths
from tfk8s.load import load, loads

ROOT = Path(__file__).parents[2]
EVERYTHING = f"""
apiVersion: tfk8s.dev/v1
name: everything
image: registry.example/tensorflow@sha256:{"0" * 64}
master: chief
port: 2300
env: {{A: a}}
volumes: [{{path: /data, claim: data, read_only: true}}]
queue: gold
network:
  allow_from: [{{pods: {{app: notebook}}}}, {{namespace: tools}}]
  allow_to: [{{cidr: 10.0.0.0/8, ports: [443]}}]
security: {{user: 12345, group: 12345, service_account: me}}
ttl: 60
jobs:
  chief: 1
  evaluator: 1
  My_ps: {{tasks: 2, cpu: 2, memory: 4Gi, labels: {{team: x}}, annotations: {{note: text}}, port: 2400}}
  worker:
    tasks: 4
    gpus: 2
    accelerator: nvidia-l4
    spot: true
    priority: high
    node_selector: {{zone: a}}
    tolerations: [{{key: k, operator: Exists}}]
    env: {{B: b}}
    preload: [tensorflow_text]
    volumes: [{{path: /cache, size: 1Gi}}, {{path: /keys, secret: keys}}, {{path: /map, config_map: map}}]
"""


@pytest.fixture(scope="module")
def job_files():
    return [loads(EVERYTHING, "everything.yaml"), *map(load, sorted((ROOT / "examples").glob("*/*.yaml")))]


def test_scanners_find_nothing(job_files, tmp_path, capsys):
    files = []
    for job_file in job_files:
        objects = rendered.objects(job_file, "tests")
        master = next(one for one in objects if one["kind"] == "StatefulSet")
        script = scriptjobs.job("script", master, scriptjobs.Run(arguments=["a.py"], environment={"A": "b"}))
        script["metadata"]["namespace"] = "tests"
        for made in (*objects, script):
            if made["kind"] in ("StatefulSet", "Job"):  # examples name an image by its tag, as people read it
                made["spec"]["template"]["spec"]["containers"][0]["image"] = loads(EVERYTHING, "everything.yaml").image
        files.append(tmp_path / f"{job_file.name}.yaml")
        files[-1].write_text(yamltext.dump([*objects, script]))
    assert check_manifests.main([str(path) for path in files]) == 0, capsys.readouterr().out


def test_a_scanner_finds_what_is_there(tmp_path, capsys):
    objects = rendered.objects(make_job_file("bad"), "tests")
    objects[0]["spec"]["policyTypos"] = objects[0]["spec"].pop("policyTypes")
    (tmp_path / "bad.yaml").write_text(yamltext.dump(objects))
    assert check_manifests.main([str(tmp_path / "bad.yaml")]) == 1
    assert "'policyTypos' not allowed" in capsys.readouterr().out


def test_the_api_server_takes_all_of_it_to_the_letter(job_files, client, namespace):
    for job_file in job_files:
        for made in rendered.objects(job_file, namespace):
            query = {"fieldManager": "t", "dryRun": "All", "fieldValidation": "Strict"}
            answer = client.send("PATCH", paths.path(made, namespace), query, made, "application/apply-patch+yaml")
            assert answer["metadata"]["labels"] == made["metadata"]["labels"]
    assert manifests.SCRIPT
