"""Records the steps of a script, and writes the page and the Chrome trace of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends.downloads import require_folders
from tfk8s.cluster.handle import Cluster
from tfk8s.core.script import Download, Script
from tfk8s.errors import InvalidInput
from tfk8s.features.timeline import chrome, page, steps
from tfk8s.features.timeline.steps import Recording
from tfk8s.log import log

EVERY = 100
_POD_PATH = "/tmp/tfk8s-recording-"  # noqa: S108 - in the script's pod; other scripts of the user may run there
_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Timeline:
    """A page that shows steps.

    Attributes:
        page: the page's path.
        every: the interval of recorded steps.
    """

    page: Path
    every: int = EVERY

    @property
    def chrome_trace(self) -> Path:
        """The path of the Chrome trace, beside the page."""
        return self.page.with_suffix(".trace.json")


def parse(page: str | None, every: int | None) -> Timeline:
    """Return the timeline that options ask for, of which one is given at least.

    Raises:
        InvalidInput: the page can't be written, or its options do not belong together.
    """
    if page is None:
        raise InvalidInput("--trace-every needs --trace", help="for example --trace steps.html --trace-every 10")
    timeline = Timeline(Path(page), EVERY if every is None else every)
    if timeline.page.suffix.lower() not in _SUFFIXES:
        raise InvalidInput(f'--trace "{page}": the page needs a name that ends in .html')
    folder = timeline.page.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidInput(f'--trace "{page}": "{folder}" is not a folder that you may write')
    for path in (timeline.page, timeline.chrome_trace):
        if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
            raise InvalidInput(f'--trace "{page}": "{path}" is not a file that you may write')
    return timeline


@contextlib.contextmanager
def recorded(script: Script, timeline: Timeline, cluster: Cluster, *, here: bool = False) -> Iterator[Script]:
    """Yield the script as it is to run; at the end of the `with`, write the page, whatever the script's end.

    Args:
        timeline: the page.
        cluster: the script's cluster. The recording of a script in a pod is copied as `--get` copies files.
        here: the script runs on this machine, wherever the cluster runs.

    Raises:
        InvalidInput: the recording is in a pod, and this system is Windows, where no files are copied from pods. The
            script did not start.
    """
    in_pod = cluster.backend.scripts.in_pods and not here
    if in_pod:
        require_folders("timelines of scripts on Kubernetes")
    with tempfile.TemporaryDirectory(prefix="tfk8s-trace-") as folder:
        recording = Path(folder, "recording")
        path = f"{_POD_PATH}{secrets.token_hex(4)}" if in_pod else str(recording)
        downloads = [*script.downloads, *[Download(path, recording)] * in_pod]
        environment = {**script.environment, "TFK8S_TRACE": f"{timeline.every}:{path}"}
        try:
            yield dataclasses.replace(script, environment=environment, downloads=downloads)
        finally:
            _write(recording, timeline, f"{script.path.name} on {cluster.name}", has_failed=sys.exception() is not None)


def _write(recording: Path, timeline: Timeline, title: str, *, has_failed: bool) -> None:
    """Write the page and the Chrome trace, if there are steps. Problems are logged: the script's end has priority."""
    try:
        found = steps.parse(recording.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not has_failed:
            log.warning("%s is not written: there is no recording of the script", timeline.page)
        return
    except (OSError, ValueError, LookupError, TypeError) as error:  # the script can write to the file, too
        log.warning("%s is not written: the recording can't be read: %s", timeline.page, error)
        return
    if not found.steps:
        log.warning("%s is not written: there is nothing to show, because %s", timeline.page, _why_empty(found))
        return
    try:
        timeline.page.write_text(page.page(found, title, timeline.every), encoding="utf-8")
        trace, drawn = chrome.chrome_trace(found)
        timeline.chrome_trace.write_text(trace, encoding="utf-8")
    except OSError as error:
        log.warning("%s can't be written: %s", error.filename or timeline.page, error.strerror or error)
        return
    count = len(found.steps)
    many = f"{count} recorded steps are" if count > 1 else "1 recorded step is"
    cut = "" if drawn == count else f", which has room for the first {drawn}"
    log.info("%s in %s and %s%s", many, timeline.page, timeline.chrome_trace, cut)


def _why_empty(recording: Recording) -> str:
    if recording.calls:
        return "no step had ended; while a step waits, `tfk8s stacks` shows the task"
    return "the script ran no step of a session (TensorFlow 2's eager calls are no steps)"
