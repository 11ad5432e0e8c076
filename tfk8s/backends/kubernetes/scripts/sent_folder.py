"""The files of a script's folder that leave this machine.

The folder may come from somebody else. So no link takes a file along that is outside of the folder, and credentials
stay here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from tfk8s.errors import InvalidInput, quoted
from tfk8s.log import log
from tfk8s.task.programs.folder_writer import MAX_DEPTH

MAX_BYTES = 100_000_000
IGNORE_FILE = ".tfk8signore"
_IGNORED = (".git/", "__pycache__/", "node_modules/", ".venv/", "venv/")
_CREDENTIALS = (
    ".ssh/", ".aws/", ".azure/", ".kube/", ".docker/", ".gnupg/", ".config/", ".netrc", ".env", ".env.*", ".pypirc",
    ".git-credentials",
)  # fmt: skip
_MAX_STARS = 3  # of a pattern: the time to match grows with the length of a path to this power
_MAX_IGNORE_BYTES = 1 << 16
_CURE = f"name in {IGNORE_FILE} what the script does not need (gitignore's rules)"


@dataclass(frozen=True, slots=True)
class SentFolder:
    """A folder, and what is sent of it.

    Attributes:
        folder: the folder, without links in its path.
        files: the files, in order.
        size: their bytes.
        left_out: the names of credentials in the folder that are not sent.
        credentials: the names of credentials that are sent.
    """

    folder: Path
    files: tuple[Path, ...]
    size: int
    left_out: tuple[str, ...]
    credentials: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.files)
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 100_000 else f"{self.size / 1e3:.1f} kB"
        return f"sends {count} file{'s' if count != 1 else ''}, {size}"

    def report_credentials(self) -> None:
        """Say which credentials are not sent, and which are: the folder may bring its own `IGNORE_FILE`."""
        for names, text in (
            (self.left_out, "credentials are not sent: %s; a line !NAME in %s sends one"),
            (self.credentials, "credentials are sent: %s, as a line !NAME in %s says"),
        ):
            if names:
                log.warning(text, ", ".join(map(quoted, names)), IGNORE_FILE)


def of_script(script: Path) -> Path:
    """Return the folder that is sent with a script.

    Raises:
        InvalidInput: the script is a link that leads out of its folder: the other folder would be sent.
    """
    return _require_below(script.parent, script, "script").parent


def require_requirements(script: Path, requirements: Path) -> None:
    """Check that a file of requirements is no link to some other file, which would be sent.

    Raises:
        InvalidInput: the file is a link that leads out of its folder, or out of the script's folder.
    """
    above, folder = (Path(os.path.abspath(path)).parent for path in (requirements, script))  # noqa: PTH100 - no links
    _require_below(folder if above.is_relative_to(folder) else above, requirements, "file of requirements")


def _require_below(folder: Path, path: Path, kind: str) -> Path:
    """Return the file that a path leads to, which has to be in a folder."""
    target = path.resolve()
    if not target.is_relative_to(folder.resolve()):
        raise InvalidInput(
            f'the {kind} "{path}" is a link that leads out of its folder, to {quoted(str(target))}',
            help="copy the file into the folder, or name the file itself",
        )
    return target


def require_script(folder: Path, script: Path) -> None:
    """Check that a script is in a folder and is sent with the folder.

    Raises:
        InvalidInput: the script does not exist, or is not sent.
    """
    if not script.is_file():
        raise InvalidInput(f'there is no script "{script}"')
    name = os.path.relpath(script.parent.resolve() / script.name, folder.resolve())
    if name.startswith(os.pardir):
        raise InvalidInput(f'the script "{script}" is outside of the folder "{folder}", with which it is copied')
    if ignored(folder).match_file(name):
        raise InvalidInput(f"{folder / IGNORE_FILE} leaves out the script {quoted(name)}")


def find(folder: Path) -> SentFolder:
    """Return the files of a folder that are sent.

    Raises:
        InvalidInput: the folder is the home folder, has a link that leads out of it, or is too large or too deep.
    """
    folder = folder.resolve()
    if Path.home().resolve().is_relative_to(folder):
        raise InvalidInput(
            f'the folder "{folder}" is not sent: it is your home folder, or contains your home folder',
            help="move the script into a folder of its own",
        )
    paths, total, left_out, sent = [], 0, set[str](), set[str]()
    for path in _walk(folder, left_out, sent):
        paths.append(path)
        total += path.stat().st_size
        if total > MAX_BYTES:
            raise InvalidInput(
                f'the folder "{folder}" has more than {MAX_BYTES // 10**6} MB, and is copied with its script',
                help=f"{_CURE}; or put its data into a volume of the job file",
            )
    return SentFolder(folder, tuple(paths), total, tuple(sorted(left_out)), tuple(sorted(sent)))


def _walk(folder: Path, left_out: set[str], sent: set[str]) -> Iterator[Path]:
    """Yield the files to send in order, and add the names of credentials that are there."""
    spec = ignored(folder)
    credentials = GitIgnoreSpec.from_lines(_CREDENTIALS)

    def is_kept(path: str) -> bool:
        is_left_out = spec.match_file(path)
        if credentials.match_file(path):
            name = path.removeprefix("./").rstrip("/")
            names = left_out if is_left_out else sent
            if not any(str(parent) in names for parent in Path(name).parents):
                names.add(name)
        return not is_left_out

    for parent, folders, names in os.walk(folder):
        inside = os.path.relpath(parent, folder)
        if inside.count("/") >= MAX_DEPTH - 1:
            raise InvalidInput(f'the folder "{folder}" is deeper than {MAX_DEPTH - 1} levels', help=_CURE)
        folders[:] = sorted(name for name in folders if is_kept(f"{inside}/{name}/"))
        for name in sorted(name for name in names if is_kept(f"{inside}/{name}")):
            path = Path(parent, name)
            if path.is_symlink():
                _require_inside(folder, path, spec)
            if path.is_file():
                yield path


def _require_inside(folder: Path, link: Path, spec: GitIgnoreSpec) -> None:
    """Check that a link leads to nothing that would not be sent without the link.

    Raises:
        InvalidInput: the link leads out of the folder, or to what is left out.
    """
    target = link.resolve()
    name = quoted(str(link.relative_to(folder)))
    if not target.is_relative_to(folder):
        raise InvalidInput(
            f'the link {name} leads out of the folder "{folder}", to {quoted(str(target))}',
            help=f"copy the file into the folder, or name the link in {IGNORE_FILE}",
        )
    inside = target.relative_to(folder)
    if any(map(spec.match_file, [inside.as_posix(), *(f"{parent}/" for parent in inside.parents[:-1])])):
        raise InvalidInput(
            f"the link {name} leads to {quoted(str(inside))}, which is not sent",
            help=f"name the link in {IGNORE_FILE}, too",
        )


def ignored(folder: Path) -> GitIgnoreSpec:
    """Return the patterns of what is left out of a folder: the defaults, then the folder's `IGNORE_FILE`.

    Raises:
        InvalidInput: the file can't be read, or has an invalid pattern.
    """
    file = folder / IGNORE_FILE
    try:
        lines = _read(file).decode().splitlines() if file.exists() else []
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8 text", help="save the file in UTF-8") from error
    for number, line in enumerate(lines, 1):
        _require_pattern(line, f"{file}:{number}")
    return GitIgnoreSpec.from_lines([*_IGNORED, *_CREDENTIALS, *lines])


def _read(file: Path) -> bytes:
    """Return what is in an `IGNORE_FILE`, which may be a link of somebody else's to a device that never ends."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise InvalidInput(f"{file} is no regular file")
    with file.open("rb") as opened:
        content = opened.read(_MAX_IGNORE_BYTES + 1)
    if len(content) > _MAX_IGNORE_BYTES:
        raise InvalidInput(f"{file} has more than {_MAX_IGNORE_BYTES >> 10} KiB")
    return content


def _require_pattern(line: str, place: str) -> None:
    """Check a line of an `IGNORE_FILE`, which may come from somebody else.

    Raises:
        InvalidInput: the line is no pattern, or has too many stars.
    """
    inner = line.strip().removeprefix("!").removeprefix("**/").rstrip("/").removesuffix("/**")  # cheap at both ends
    stars = sum(1 if part == "**" else part.count("*") for part in inner.split("/"))
    if not line.startswith("#") and stars > _MAX_STARS:
        raise InvalidInput(f'{place}: {quoted(line)} has more than {_MAX_STARS} "*"')
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error) as error:
        raise InvalidInput(f"{place}: {quoted(line)} is not a pattern of gitignore") from error
