"""A program: runs commands on the fake backend, as on macOS or Windows; prints results and loaded modules as JSON.

Arguments: the system, and the commands as JSON, each a list of words.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import sys

from fakes import platforms


def main(system: str, commands: str) -> None:
    platforms.enter(system)
    results = [run(words) for words in json.loads(commands)]
    import_all("tfk8s.backends.kubernetes", "tfk8s.cli")
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "tfk8s")
    sys.stdout.write(json.dumps({"results": results, "modules": modules}))


def run(words: list[str]) -> tuple[int, str]:
    """Return the exit code of a command, and what it wrote to standard error."""
    from job_files import job_file

    from tfk8s import __main__
    from tfk8s.testing import FakeBackend, use_backend

    backend = FakeBackend(job_file())
    backend.name, backend.flags = "kubernetes", ""
    sys.argv = ["tfk8s", *words]
    with contextlib.ExitStack() as stack:
        if "--local" not in words:
            stack.enter_context(use_backend(backend))
        stack.enter_context(contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())))
        error = stack.enter_context(contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())))
        try:
            code = __main__.main()
        except SystemExit as end:
            code = int(end.code or 0)
        error.seek(0)
        return code, error.read()


def import_all(*packages: str) -> None:
    """Import all modules of packages but those that tfk8s imports for terminals alone."""
    for name in packages:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not module.name.endswith(".raw_terminal"):
                importlib.import_module(module.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
