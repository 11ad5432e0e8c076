"""Runs all cases on a cluster on this machine, keeps the results and writes the page: `make test-keras`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from keras_features import cases, page, results

_SCRIPT = Path(__file__).with_name("script.py")
_CLUSTER = "apiVersion: tfk8s.dev/v1\nname: keras-features\njobs: {ps: 1, worker: 2}\n"


def _tfk8s(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tfk8s", *arguments]


def main() -> int:
    bad: list[object] = []
    with tempfile.TemporaryDirectory() as folder:
        job_file = Path(folder, "cluster.yaml")
        job_file.write_text(_CLUSTER)
        subprocess.run(_tfk8s("up", "--local", str(job_file)), check=True)
        try:
            for library in ("keras", "tf_keras"):
                command = _tfk8s("submit", "--local", "keras-features", str(_SCRIPT), library, "all")
                environment = {**os.environ, **results.VARIABLES[library]}
                run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment)
                result = results.read(run.stdout.splitlines())
                results.save(library, result)
                differ = [name for name, outcome in result.outcomes.items() if outcome.how == "differs"]
                bad += [run.returncode, *cases.unknown(library, differ)]
        finally:
            subprocess.run(_tfk8s("down", "--local", "keras-features"), check=True)
    page.write()
    return int(any(bad))


if __name__ == "__main__":
    sys.exit(main())
