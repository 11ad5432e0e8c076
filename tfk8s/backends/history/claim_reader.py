"""A program that prints records of a shared history, in a pod that mounts the volume: python3 … FOLDER.

Others may write to the volume. So no link is followed, and only regular files of a bounded size are read. Its answer
has the form of `core.history.records`, which also makes the request.

Standard library only, and nothing of tfk8s: the text of this file is sent to a pod that may lack the file.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import re
import stat
import sys
from typing import Any, BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # the open of a pipe would wait for its other end
_PROBLEMS = {  # ENXIO: a socket; ENOTDIR: what is opened as a folder
    errno.ELOOP: "is a link", errno.ENXIO: "is no regular file", errno.EISDIR: "is no regular file",
    errno.ENOTDIR: "is no folder",
}  # fmt: skip

Request = dict[str, Any]


class Unreadable(Exception):
    """A file is not what it should be."""


def serve(folder: str, request: Request, output: BinaryIO) -> None:
    """Print the list of the newest records, or the records that were chosen."""
    try:
        root = os.open(folder, _FOLDER)
    except FileNotFoundError:  # nobody has written yet
        _print(output, {"left_out": 0})
        return
    if request["chosen"] is None:
        newest = _newest(root, request)
        for name in newest[: request["last"]]:
            _print(output, {"record": name, "mark": _mark(root, name, request)})
        _print(output, {"left_out": max(0, len(newest) - request["last"])})
        return
    left = request["max_records"]
    for number, name in enumerate(request["chosen"]):
        header, parts = _record(root, name, request)
        left -= sum(map(len, parts))
        if left < 0:
            _print(output, {"left_out": len(request["chosen"]) - number})
            return
        _print(output, header)
        output.writelines(parts)
    _print(output, {"left_out": 0})


def _print(output: BinaryIO, header: dict[str, Any]) -> None:
    output.write(json.dumps(header).encode() + b"\n")


def _newest(root: int, request: Request) -> list[str]:
    """Return the names of the records, the newest first."""
    found, pattern = [], re.compile(request["record"])
    with os.scandir(root) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and request["cluster"] in (None, match[1]):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        facts = os.stat(f"{entry.name}/{request['facts']}", dir_fd=root, follow_symlinks=False)
                        found.append((facts.st_mtime_ns, entry.name))
    return [name for _, name in sorted(found, reverse=True)]


def _mark(root: int, name: str, request: Request) -> str:
    """Return a text that differs after each change of a record."""
    seen = []
    with contextlib.suppress(OSError), _opened(name, root) as folder:
        for file in (request["facts"], request["events"], *_logs(folder, request)):
            with contextlib.suppress(OSError):
                found = os.stat(file, dir_fd=folder, follow_symlinks=False)
                seen.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _opened(name: str, root: int) -> Any:
    """Open a folder in another one, in a `with`."""
    descriptor = os.open(name, _FOLDER, dir_fd=root)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _logs(folder: int, request: Request) -> list[str]:
    """Return the paths of a record's logs."""
    wanted = re.compile(request["log_name"])
    try:
        with _opened(request["logs"], folder) as logs, os.scandir(logs) as entries:
            names = [entry.name for entry in entries if wanted.fullmatch(entry.name)]
    except OSError:
        return []
    return [f"{request['logs']}/{name}" for name in sorted(names)[: request["max_parts"] - 2]]


def _record(root: int, name: str, request: Request) -> tuple[dict[str, Any], list[bytes]]:
    """Return the line of a record, and its parts."""
    header: dict[str, Any] = {"record": name, "mark": _mark(root, name, request), "parts": []}
    parts: list[bytes] = []
    problems: list[str] = []
    left = request["max_record"]
    try:
        with _opened(name, root) as folder:
            limits: dict[str, int] = {request["facts"]: request["max_facts"], request["events"]: request["max_events"]}
            for path in (*limits, *_logs(folder, request)):
                try:
                    content = _read(folder, path, limits[path] if path in limits else request["max_log"])
                    if content is None:
                        continue
                    packed = gzip.compress(content, 1) if path in limits else content
                    if len(packed) > left:
                        raise Unreadable("is left out: the record is too large")
                except (Unreadable, OSError) as error:
                    problems.append(f"{path} {_words(error)}")
                    continue
                left -= len(packed)
                header["parts"].append([path, len(packed)])
                parts.append(packed)
    except OSError as error:
        problems.append(_words(error))
    if problems:
        header["problem"] = problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1} more"
    return header, parts


def _words(error: Unreadable | OSError) -> str:
    code = getattr(error, "errno", None)
    return _PROBLEMS.get(code or 0) or getattr(error, "strerror", None) or str(error)


def _read(folder: int, path: str, most: int) -> bytes | None:
    """Return the content of a file; None if there is none. A link on the way is not followed.

    Raises:
        Unreadable: it is no regular file, or is too large.
        OSError: it can't be read.
    """
    parent, _, name = path.rpartition("/")
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(_opened(parent, folder)) if parent else folder
            descriptor = os.open(name, _FILE, dir_fd=place)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("is no regular file")
            if found.st_size > most:
                raise Unreadable(f"has more than {most:,} bytes")
            return file.read(most)


if __name__ == "__main__":
    size = int(sys.argv.pop())
    serve(sys.argv.pop(), json.loads(sys.stdin.buffer.read(size)), sys.stdout.buffer)
    sys.stdout.buffer.flush()
