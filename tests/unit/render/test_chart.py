"""What of the Helm chart is generated from this package. TFK8S_UPDATE=1 writes it again; tests/chart runs Helm."""

import json
import os
import re
from pathlib import Path

import yaml

from tfk8s import __version__
from tfk8s.jobfile.schema import json_schema
from tfk8s.render import package_files

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "tfk8s"


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    described = CHART / "Chart.yaml"
    versions = re.sub("^(version|appVersion): .*", rf"\1: {__version__}", described.read_text(), flags=re.MULTILINE)
    values = json_schema()
    values["properties"]["global"] = {
        "type": "object",
        "description": "Helm's own, where another chart depends on it.",
    }
    return {
        described: versions,
        CHART / "values.schema.json": json.dumps(values, indent=2) + "\n",
        **{CHART / "files" / package_files.key(path): text for path, text in package_files.of_tasks().items()},
    }


def test_the_chart_has_this_packages_version_schema_and_files():
    for path, text in generated().items():
        if os.environ.get("TFK8S_UPDATE"):
            path.write_text(text)
        assert path.read_text() == text, "write it again with: make update"
    assert {path.name for path in (CHART / "files").iterdir()} == set(map(package_files.key, package_files.of_tasks()))


def test_it_has_no_values_for_a_job_file_would_be_merged_into_them():
    assert yaml.safe_load((CHART / "values.yaml").read_text()) is None


def test_templates_have_at_most_200_lines_in_all():
    assert sum(len(path.read_text().splitlines()) for path in (CHART / "templates").iterdir()) <= 200


def test_kubernetes_finds_no_variable_in_the_script_of_helm_test():
    assert "$(" not in (CHART / "session.py").read_text()
