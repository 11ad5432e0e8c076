"""Runs cases on a cluster on this machine, keeps each outcome at once and writes the page: `make test-keras`.

python -m keras_features [--continue] [keras] [tf_keras]
"""

from __future__ import annotations

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--continue", dest="is_continued", action="store_true", help="keep what an earlier run found")
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(results.VARIABLES)}; default: each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # another checkout may have a cluster of the same name
        job_file = Path(folder, "cluster.yaml")
        job_file.write_text(_CLUSTER)
        subprocess.run(_tfk8s("up", "--local", str(job_file)), check=True)
        try:
            codes = [_run(name, options.is_continued) for name in options.libraries or results.VARIABLES]
        finally:
            subprocess.run(_tfk8s("down", "--local", "keras-features"), check=True)
            page.write()
    return int(any(codes))


def _run(library: str, is_continued: bool) -> int:
    """Run a library's cases and keep their outcomes; return 0 if nothing unknown differs."""
    kept = results.load() if is_continued else {}
    done = kept[library].outcomes if library in kept else {}
    command = _tfk8s("submit", "--local", "keras-features", str(_SCRIPT), library, "all", *done)
    environment = {**os.environ, **results.VARIABLES[library]}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        result = results.follow(library, run.stdout or (), kept.get(library))
    differ = [name for name, outcome in result.outcomes.items() if outcome.how == "differs"]
    return int(run.returncode != 0 or bool(cases.unknown(library, differ)))


if __name__ == "__main__":
    sys.exit(main())
