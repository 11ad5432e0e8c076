"""The mount namespace of a local cluster, in which paths can show other files than elsewhere (mount_namespaces(7)).

Root, and other users in a user namespace of their own, may mount there. No other process sees these mounts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfk8s.backends.local import network_namespace
from tfk8s.backends.local.network_namespace import CLONE_NEWNS, call
from tfk8s.core.storage.volumes import Volume

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 0x1, 0x20, 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_MS_RELATIME = 1 << 21
_KEPT_FLAGS = 0x2 | 0x4 | 0x8 | 0x400 | 0x800  # nosuid, nodev, noexec, noatime, nodiratime: equal in statvfs(3)
_ST_RELATIME = 0x1000
_OLD_ROOT = ".old"


class MountError(Exception):
    """A folder can't be mounted at the path of its volume.

    Attributes:
        help: what the user can do.
    """

    def __init__(self, volume: Volume, reason: str) -> None:
        super().__init__(f"can't mount folder {volume.folder} at {volume.path}: {reason}")
        self.help = (
            f"make the path a link, as root: ln -s {volume.folder} {volume.path}; or let the code find the folder by "
            f'tfk8s.path("{volume.path}"), and set local_mount: false'
        )


def needed(volumes: Iterable[Volume]) -> list[Volume]:
    """Return the volumes whose folders are to be mounted, by path: the others have no folder, or are there already."""
    chosen = (volume for volume in volumes if volume.folder and volume.local_mount and not _is_there(volume))
    return sorted(chosen, key=lambda volume: Path(volume.path).parts)


def _is_there(volume: Volume) -> bool:
    path, folder = Path(volume.path), Path(volume.folder or "")
    return path.exists() and folder.exists() and path.samefile(folder)


def mount(volumes: Sequence[Volume]) -> None:
    """Show the folders of volumes at their paths, for this process and its later children alone.

    Where the root folder lacks a path and can't be written to, this process gets a root folder of its own, with all
    that is there and this path.

    Raises:
        MountError: this process may not mount, or a path can't be made.
    """
    if not (chosen := needed(volumes)):
        return
    folder = os.getcwd()  # noqa: PTH109
    volume = chosen[0]
    try:
        _leave()
        if missing := _missing_in_root(chosen):
            _replace_root(missing)
        for volume in chosen:
            _mount(volume)
        if missing:
            Path("/").chmod(0o555)  # else files could be written there that nobody would find
    except OSError as error:
        raise MountError(volume, error.strerror or str(error)) from error
    os.chdir(folder)


def enter(volumes: Sequence[Volume]) -> None:
    """Do what `mount` does, in a process that keeps this machine's own network.

    Raises:
        MountError: this process may not mount, or a path can't be made.
    """
    if not (chosen := needed(volumes)):
        return
    try:
        network_namespace.call_where_mounts_are_allowed(lambda: mount(volumes))
    except OSError as error:
        raise MountError(chosen[0], error.strerror or str(error)) from error


def bind(source: Path, target: Path) -> None:
    """Show a file or folder at the place of another, for this process and its later children alone.

    Later mounts elsewhere still arrive here.

    Raises:
        OSError: this process may not mount.
    """
    _leave()
    _bind(source, target)


def _leave() -> None:
    """Give this process its own mounts."""
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)


def _mount(volume: Volume) -> None:
    target = Path(volume.path)
    target.mkdir(parents=True, exist_ok=True)
    _bind(Path(volume.folder or ""), target)
    if volume.read_only:
        flags = os.statvfs(target).f_flag
        kept = flags & _KEPT_FLAGS | (_MS_RELATIME if flags & _ST_RELATIME else 0)
        options = ctypes.c_ulong(_MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)
        call("mount", b"none", os.fsencode(target), None, options, None)


def _bind(source: Path, target: Path) -> None:
    options = ctypes.c_ulong(_MS_BIND | _MS_REC)
    call("mount", os.fsencode(source), os.fsencode(target), None, options, None)


def _missing_in_root(volumes: Sequence[Volume]) -> list[str]:
    """Return the names that the root folder lacks for volumes, if nobody can make them there."""
    if os.access("/", os.W_OK):
        return []
    names = dict.fromkeys(Path(os.path.normpath(volume.path)).parts[1] for volume in volumes)
    return [name for name in names if not os.path.lexists(f"/{name}")]


def _replace_root(names: Iterable[str]) -> None:
    """Give this process a root folder with the entries of the old one and more folders (pivot_root(2))."""
    base = b"/tmp"
    call("mount", b"tmpfs", base, b"tmpfs", ctypes.c_ulong(0), b"mode=755")
    os.chdir(base)
    Path(_OLD_ROOT).mkdir()
    call("pivot_root", b".", os.fsencode(_OLD_ROOT))
    os.chdir("/")
    for entry in os.scandir(f"/{_OLD_ROOT}"):
        place = Path("/", entry.name)
        if entry.is_symlink():
            place.symlink_to(os.readlink(entry.path))  # noqa: PTH115
            continue
        place.mkdir() if entry.is_dir() else place.touch()
        _bind(Path(entry.path), place)
    for name in names:
        Path("/", name).mkdir()
    call("umount2", os.fsencode(f"/{_OLD_ROOT}"), _MNT_DETACH)
    Path("/", _OLD_ROOT).rmdir()
