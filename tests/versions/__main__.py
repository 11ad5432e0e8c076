"""Commands: see CONTRIBUTING.md.

python -m versions tensorflow [2.15 …] [mixed] [lowest] [io]
python -m versions libraries [tf-slim …]
python -m versions kubernetes [--whole CONTEXT …] [--helm PROGRAM …] [CONTEXT …]
python -m versions enter CONTEXT REPORT ["Kueue 0.19.0"]
python -m versions page
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from versions import contexts, environments, libraries, page, results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tensorflow").add_argument("selected", nargs="*")
    commands.add_parser("libraries").add_argument("selected", nargs="*")
    kubernetes = commands.add_parser("kubernetes")
    kubernetes.add_argument("contexts", nargs="*")
    kubernetes.add_argument("--whole", nargs="*", default=[])
    kubernetes.add_argument("--helm", nargs="*", default=[])
    enter = commands.add_parser("enter")
    enter.add_argument("context")
    enter.add_argument("report", type=Path)
    enter.add_argument("scheduler", nargs="?", default="")
    commands.add_parser("page")
    options = parser.parse_args()
    runs: Iterable[tuple[str, results.Result]] = ()
    if options.command == "tensorflow":
        runs = environments.test(options.selected)
    elif options.command == "libraries":
        runs = libraries.test(options.selected)
    elif options.command == "kubernetes":
        runs = contexts.test(options.contexts, options.whole, options.helm)
    elif options.command == "enter":
        runs = [contexts.enter(options.context, options.report, options.scheduler)]
    has_failed = False
    for name, result in runs:
        results.save(name, result)
        page.write()
        has_failed = has_failed or bool(result.failed)
    page.write()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
