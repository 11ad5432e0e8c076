"""kubectl reads the objects that tfk8s and Helm print. Its YAML is Go's: `n` is false there, and `1e-4` is a number."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from job_files import AMBIGUOUS_TEXTS, EVERYTHING, PROGRAMS, as_json
from zips import with_files

from tfk8s import __version__, render
from tfk8s.jobfile.loader import loads
from tfk8s.render import manifests, yaml

OF_LIMITS = ("Role", "RoleBinding")  # a dry run creates no Role for the RoleBinding
CHART = Path(__file__).parents[2] / "helm" / "tfk8s"

NAMES = {text: text for text in AMBIGUOUS_TEXTS if re.fullmatch("[0-9A-Za-z][-_.0-9A-Za-z]*[0-9A-Za-z]|[A-Za-z]", text)}
JOB_FILE = {
    "apiVersion": "tfk8s.dev/v1",
    "name": "y",
    "image": "1e-4",
    "env": {"n": "n", **{f"TEXT_{number}": text for number, text in enumerate(["", *AMBIGUOUS_TEXTS])}},
    "jobs": {"y": {"tasks": 2, "annotations": NAMES, "labels": NAMES, "node_selector": NAMES}},
}


def read_by_kubectl(text):
    """Return the objects that kubectl reads, without the namespace that it adds."""
    done = subprocess.run(
        ["kubectl", "create", "--dry-run=client", "--validate=false", "--output=json", "--filename=-"],
        input=text, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    objects = json.loads("[" + done.stdout.replace("\n}\n{", "\n},\n{") + "]")
    for item in objects:
        item["metadata"].pop("namespace", None)
    return objects


def test_kubectl_reads_what_render_prints():
    objects = render.objects(loads(as_json(JOB_FILE), "job.yaml"))
    assert read_by_kubectl(yaml.dump(objects)) == objects


@pytest.mark.parametrize("text", [EVERYTHING, PROGRAMS], ids=["servers", "programs"])
def test_kubectl_applies_what_render_prints_on_the_client(text, namespace):
    """The client writes each object into an annotation, which may have 262,144 bytes; a dry run checks that too."""
    job_file = dataclasses.replace(loads(text, "job.yaml"), namespace=None)
    command = ["kubectl", "apply", "--server-side=false", "--dry-run=server", "--namespace", namespace, "--filename=-"]
    objects = [item for item in render.objects(job_file) if item["kind"] not in OF_LIMITS]
    done = subprocess.run(command, input=yaml.dump(objects), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"configmap/{job_file.name} created (server dry run)" in done.stdout


def test_kubectl_reads_what_helm_prints(tmp_path):
    (tmp_path / "job.yaml").write_text(as_json(JOB_FILE))
    command = ["helm", "template", "y", CHART, "--values", tmp_path / "job.yaml", "--kube-version=1.30.0"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    objects = render.objects(loads(as_json(JOB_FILE), "job.yaml"))
    for item in objects:
        item["metadata"]["labels"] |= {manifests.MANAGED_BY: "Helm", "helm.sh/chart": f"tfk8s-{__version__}"}
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in with_files(read_by_kubectl(printed))}
    (tested,) = by_name.pop(("Pod", "y-test"))["spec"]["containers"]
    (server,) = by_name["StatefulSet", "y-y"]["spec"]["template"]["spec"]["containers"]
    assert tested["env"] == [*server["env"], {"name": "TFK8S_JOBS", "value": "y=2:2222"}]  # for its session
    assert by_name == {(item["kind"], item["metadata"]["name"]): item for item in with_files(objects)}


texts = (
    st.sampled_from(AMBIGUOUS_TEXTS)
    | st.text("0123456789_.+-eExXoObBaAfFnNyY:~= tTzZ", max_size=8)
    | st.text("\n \t#:-?{}[]'\"|>&*!%@`,ab\r\x85\u2028\ufeff", max_size=8)
    | st.text(max_size=8)
)


@pytest.mark.usefixtures("namespace")  # kubectl asks the API server for the kinds of objects
@given(st.dictionaries(texts, texts, min_size=30), st.lists(texts, min_size=10, max_size=10))
@settings(
    max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_kubectl_reads_any_text_as_key_and_value(many, few):
    """Long mappings are printed in blocks, short ones on one line."""
    data = [many, *({text: text} for text in few)]
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"y{number}"}, "data": part}
        for number, part in enumerate(data)
    ]
    assert read_by_kubectl(yaml.dump(objects)) == objects
