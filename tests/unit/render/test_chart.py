"""Tests of the generated files of the Helm chart. TFK8S_UPDATE=1 writes the files; tests/chart runs Helm."""

import json
import os
import re
from pathlib import Path

import yaml
from zips import unpack

from tfk8s import __version__
from tfk8s.jobfile.schema import json_schema
from tfk8s.render import package_files

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "tfk8s"
ZIP = CHART / "files" / package_files.KEY


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    metadata = CHART / "Chart.yaml"
    versions = re.sub("^(version|appVersion): .*", rf"\1: {__version__}", metadata.read_text(), flags=re.MULTILINE)
    values = json_schema()
    del values["$id"]  # Helm reads the schema alone, and some versions look an $id up
    values["properties"]["global"] = {
        "type": "object",
        "description": "Global values of Helm, for charts that depend on this chart.",
    }
    return {
        metadata: versions,
        CHART / "values.schema.json": json.dumps(values, indent=2) + "\n",
    }


def test_chart_has_the_zip_of_the_package():
    """The files are compared, and not the bytes: another zlib may compress the same files otherwise."""
    if os.environ.get("TFK8S_UPDATE") and not (ZIP.exists() and unpack(ZIP.read_bytes()) == package_files.of_tasks()):
        ZIP.write_bytes(package_files.zip_of_tasks())
    assert unpack(ZIP.read_bytes()) == package_files.of_tasks(), "run: make update"
    assert [path.name for path in ZIP.parent.iterdir()] == [package_files.KEY]


def test_chart_has_the_version_and_schema_of_the_package():
    for path, text in generated().items():
        if os.environ.get("TFK8S_UPDATE"):
            path.write_text(text)
        assert path.read_text() == text, "run: make update"


def test_chart_has_no_default_values():
    assert yaml.safe_load((CHART / "values.yaml").read_text()) is None  # a job file would be merged into them


def test_templates_have_at_most_420_lines():
    assert sum(len(path.read_text().splitlines()) for path in (CHART / "templates").iterdir()) <= 420


def test_script_of_helm_test_has_no_kubernetes_variables():
    assert "$(" not in (CHART / "session.py").read_text()
