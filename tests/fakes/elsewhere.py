"""A program: runs commands on the fake backend, as on macOS and Windows; prints results and loaded modules as JSON.

Argument: the commands of each system as JSON, each command a list of words. Each system has a process of its own. They
are forks of one that has imported other packages, which see this machine on each system and take most of the time.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import sys
import traceback

from fakes import platforms

OTHER_PACKAGES = ("kubernetes.client", "kubernetes.config", "typer.rich_utils", "urllib3", "websocket", "yaml")


def main(commands: str) -> None:
    for name in OTHER_PACKAGES:
        importlib.import_module(name)
    platforms.read_stubs()
    started = {system: fork(system, words) for system, words in json.loads(commands).items()}
    answers = {system: json.load(os.fdopen(answer)) for system, answer in started.items()}
    for _ in started:
        os.wait()
    sys.stdout.write(json.dumps(answers))


def fork(system: str, commands: list[list[str]]) -> int:
    """Run the commands of a system in another process; return the descriptor of the pipe that gets its answer."""
    answer, end = os.pipe()
    if os.fork():
        os.close(end)
        return answer
    try:
        platforms.enter(system)
        results = [run(words) for words in commands]
        import_all("tfk8s.backends.kubernetes", "tfk8s.cli")
        modules = sorted(name for name in sys.modules if name.partition(".")[0] == "tfk8s")
        with open(end, "w") as file:
            json.dump({"results": results, "modules": modules}, file)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def run(words: list[str]) -> tuple[int, str]:
    """Return the exit code of a command, and what it wrote to standard error."""
    from tfk8s import __main__
    from tfk8s.core.spec import Job, JobFile
    from tfk8s.testing import FakeBackend, use_backend

    jobs = (Job(name="chief"), Job(name="worker", tasks=2))
    backend = FakeBackend(JobFile(name="mnist", jobs=jobs, master="chief"))
    backend.flags, backend.in_pods = "", True
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
