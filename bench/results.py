"""Measures everything in one go, and writes bench/results.md.

    python bench/results.py [SCRIPT ...]      # default: all, such as `start`, `session` or `kube`

The page of the run before is read first. The new page has the ratios of both runs, and names those that differ. With
arguments, only these scripts run, and the other sections of the page stay. Run nothing else on the machine.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from pathlib import Path

import commands
import isolation
import kube
import ladder
import page
import programs
import session
import start
import strategy
from measure import call, own_state

PAGE = Path(__file__).with_name("results.md")
SCRIPTS = (commands, start, isolation, session, programs, strategy, ladder, kube)
HEAD = """\
# Results

`make bench` writes this page: a run of everything in one go, side by side.

| | |
| --- | --- |
| machine | {machine} |
| versions | {versions} |

- Each ratio is tfk8s' figure divided by the other one. Both ways take turns, and each turn gives one ratio.
- Each figure is the median of all turns. In brackets are the smallest and the largest.
- A bound is the project's own limit for the ratio, or for tfk8s' median if the bound has a unit.
- Two runs agree if the ranges of their ratios overlap.

"""


def machine() -> str:
    """Return the cores, the memory, the kernel and the processor's model."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    models = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = models[0] if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({model}), {memory / 1e9:.0f} GB of memory, {platform.system()} {platform.release()}"


def versions() -> str:
    """Return the versions of what is compared."""
    packages = ("tfk8s", "tensorflow", "tensorflow-cpu", "keras", "typer", "kubernetes")
    names = {one.name.lower().replace("_", "-") for one in importlib.metadata.distributions()}
    found = [f"{package} {importlib.metadata.version(package)}" for package in packages if package in names]
    if shutil.which("kubectl"):
        found.append("kubectl " + re.findall(r"v(\S+)", call("kubectl", "version", "--client"))[0])
    return ", ".join((*found, f"Python {platform.python_version()}"))


def main() -> None:
    """Measure, and write the page after each section."""
    scripts = {script.__name__: script for script in SCRIPTS}
    if unknown := set(sys.argv[1:]) - set(scripts):
        raise SystemExit(f"no script {', '.join(sorted(unknown))}; there are {', '.join(scripts)}")
    chosen = [scripts[name] for name in sys.argv[1:] or scripts]
    head = HEAD.format(machine=machine(), versions=versions())
    old_head, sections = page.split(PAGE.read_text() if PAGE.exists() else "")
    if old_head != head:
        if sections and sys.argv[1:]:
            raise SystemExit(f"{PAGE} is of another machine or of other versions: measure everything")
        sections = {}
    for script in chosen:
        print(f"\n{script.TITLE}", file=sys.stderr)
        with own_state():
            sections[script.TITLE] = page.section(script.TITLE, script.comparisons(), sections.get(script.TITLE, ""))
        titles = [script.TITLE for script in SCRIPTS if script.TITLE in sections]
        PAGE.write_text(page.join(head, [sections[title] for title in titles]))


if __name__ == "__main__":
    main()
