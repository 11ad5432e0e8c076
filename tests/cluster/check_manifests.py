"""Checks rendered objects with kubeconform -strict, kube-score and checkov, and prints their findings.

    python tests/cluster/check_manifests.py FILE.yaml…

kubeconform's schemas are those of the current kubeconfig context's API server. checkov, which has 80 dependencies, is
installed into an environment of its own. What is left out here is argued for in docs/security.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from kube_api import KubeApi

from tfk8s.backends.kubernetes.api_server import paths

KUBE_SCORE_WITHOUT = ("container-image-pull-policy", "poddisruptionbudget-has-policy", "service-targets-pod")
CHECKOV_WITHOUT = ("CKV_K8S_8", "CKV_K8S_15", "CKV_K8S_35")

CHECKOV = "checkov==3.3.30"
ENVIRONMENT = Path(__file__).parents[2] / ".venv" / "checkov"


def checkov() -> Path:
    """Return the program, installed if it was not there."""
    program = ENVIRONMENT / "bin" / "checkov"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        subprocess.run([ENVIRONMENT / "bin" / "pip", "install", "--quiet", CHECKOV], check=True)
    return program


def write_schemas(folder: Path) -> None:
    """Write a JSON Schema for each kind that tfk8s makes, as the API server has it; other fields are errors."""
    definitions = KubeApi().get("/openapi/v2")["definitions"]

    def strict(schema: Any) -> Any:
        if isinstance(schema, list):
            return [strict(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            return strict(definitions[schema["$ref"].rpartition("/")[2]])
        if schema.get("format") == "int-or-string":
            return {"type": ["string", "integer"]}
        known = {key: strict(value) for key, value in schema.items()}
        return known | {"additionalProperties": False} if "properties" in known else known

    for definition in definitions.values():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            if kind["kind"] in paths.KINDS:
                group = f"{kind['group'].partition('.')[0]}-" if kind["group"] else ""
                path = folder / f"{kind['kind']}-{group}{kind['version']}.json".lower()
                path.write_text(json.dumps(strict(definition)))


def commands(files: list[str], schemas: Path) -> list[list[str]]:
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return [
        ["kubeconform", "-strict", "-summary", "-schema-location", location, *files],
        ["kube-score", "score", "--output-format=ci",
         *(f"--ignore-test={test}" for test in KUBE_SCORE_WITHOUT), *files],
        [str(checkov()), "--framework=kubernetes", "--compact", "--quiet",
         f"--skip-check={','.join(CHECKOV_WITHOUT)}", *(f"--file={file}" for file in files)],
    ]  # fmt: skip


def main(files: list[str]) -> int:
    """Return 1 if any of the programs finds fault with the files."""
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        write_schemas(Path(folder))
        for command in commands(files, Path(folder)):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                print(f"$ {' '.join(command)}\n{result.stdout}{result.stderr}")  # noqa: T201
                worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
