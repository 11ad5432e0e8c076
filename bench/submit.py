"""Measures `tfk8s submit` on Kubernetes: the first script of a cluster, later ones in the warm pod, and `--fresh`.

    python bench/submit.py IMAGE [RUNS]

IMAGE must contain TensorFlow and be on the nodes. The benchmark runs in a new namespace of the kubeconfig's current
context, and removes the namespace. Run nothing else on the machine, so that the figures are comparable.

Each time is from the start of the command to its end, with the tutorial's script. "Import" is the time of a Python
process that imports the official Kubernetes client and ends, which each command contains.
"""

from __future__ import annotations

import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TFK8S = [sys.executable, "-m", "tfk8s"]
SCRIPT = Path(__file__).parents[1] / "examples" / "tutorial" / "two_tasks.py"
JOB_FILE = "apiVersion: tfk8s.dev/v1\nname: tutorial\nimage: {image}\njobs:\n  local: 2\n"
IMPORT = [sys.executable, "-c", "import kubernetes.client"]


def seconds(command: list[str]) -> float:
    """Return the seconds that a command takes; the command must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return time.perf_counter() - start


def shown(times: list[float]) -> str:
    """Return the median of times, with the fastest and the slowest."""
    return f"{statistics.median(times):.2f} s ({min(times):.2f}–{max(times):.2f})"


def main(image: str, runs: int) -> None:
    """Measure, and print."""
    namespace = f"bench-{secrets.token_hex(3)}"
    subprocess.run(["kubectl", "create", "namespace", namespace], check=True, stdout=subprocess.DEVNULL)
    submit = [*TFK8S, "submit", "--namespace", namespace, "--tf1"]
    words = ["tutorial", str(SCRIPT)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            job_file = Path(folder, "cluster.yaml")
            job_file.write_text(JOB_FILE.format(image=image))
            subprocess.run([*TFK8S, "up", "--namespace", namespace, str(job_file)], check=True, capture_output=True)
        print(f"first submit          {seconds([*submit, *words]):.2f} s")
        warm, imports = [], []
        for _ in range(runs):
            warm.append(seconds([*submit, *words]))
            imports.append(seconds(IMPORT))
        print(f"later submit          {shown(warm)}")
        print(f"  of these, import    {shown(imports)}")
        print(f"submit --fresh        {shown([seconds([*submit, '--fresh', *words]) for _ in range(3)])}")
    finally:
        subprocess.run(["kubectl", "delete", "namespace", namespace], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if not (len(sys.argv) in (2, 3) and re.fullmatch(r"\d*", "".join(sys.argv[2:]))):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 10)
