"""The files of a kubeconfig, merged: named entries, whose fields are read as what they have to be."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tfk8s.errors import InvalidInput, quoted

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is there
_LISTS = {"contexts": "context", "clusters": "cluster", "users": "user"}


class Entry:
    """One named entry, or a table in it. No message about it shows what is in a field: that may be a secret.

    Args:
        about: what it is, such as `user "me" of /home/me/.kube/config`.
        folder: what its relative paths start from.
        data: its fields.
    """

    def __init__(self, about: str, folder: Path, data: Mapping[str, Any]) -> None:
        self.about, self._folder, self._data = about, folder, data

    def wrong(self, what: str, help: str | None = None) -> InvalidInput:  # noqa: A002 - as the error's
        """Return the error for what is wrong with the entry."""
        return InvalidInput(f"{self.about} can't be used: {what}", help=help)

    def text(self, key: str) -> str:
        """Return a text; "" where there is none.

        Raises:
            InvalidInput: it is no text; so do all others here, each for what it returns.
        """
        value = self._data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f'"{key}" has to be text', help="put it in quotes")
        return value or ""

    def flag(self, key: str) -> bool:
        """Return whether something is so; it is not where nothing is said."""
        value = self._data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f'"{key}" has to be true or false')
        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(f'"{key}" has to be a list of texts', help="put each in quotes")
        return tuple(values)

    def table(self, key: str) -> Entry | None:
        """Return a table of fields."""
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(f'"{key}" has to be a table')
        return Entry(f'"{key}" of {self.about}', self._folder, value)

    def tables(self, key: str) -> Iterator[Entry]:
        """Yield the tables of a list."""
        for number, value in enumerate(self._list(key), 1):
            if not isinstance(value, dict):
                raise self.wrong(f'number {number} of "{key}" has to be a table')
            yield Entry(f'number {number} of "{key}" of {self.about}', self._folder, value)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(map(str, self._data))

    def plain(self, key: str) -> object:
        """Return whatever is there, as it is."""
        return self._data.get(key)

    def path(self, key: str) -> Path | None:
        """Return a path, from the folder of the entry's file where it is relative."""
        text = self.text(key)
        return self._folder / text if text else None

    def content(self, key: str) -> bytes:
        """Return what is in the field KEY-data, as base64, or else in the file that KEY names; empty without both."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError:
                raise self.wrong(f'"{key}-data" is not base64') from None
        path = self.path(key)
        if path is None:
            return b""
        try:
            return path.read_bytes()
        except (OSError, ValueError) as error:
            raise self.wrong(f'"{key}" is {quoted(str(path))}: {getattr(error, "strerror", error)}') from error

    def _list(self, key: str) -> list[Any]:
        value = self._data.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(f'"{key}" has to be a list')
        return value or []


@dataclass(slots=True)
class Merged:
    """All files of a kubeconfig as one: the first that has a name, or a current context, counts.

    Attributes:
        places: the files, as the user named them.
        found: there is at least one of them.
        current: the current context's name, or "".
        contexts, clusters, users: entries by name.
    """

    places: str
    found: bool = False
    current: str = ""
    contexts: dict[str, Entry] = field(default_factory=dict)
    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)


def read(places: str) -> Merged:
    """Read and merge files, of which some may be missing.

    Args:
        places: their paths, with ":" between, as in KUBECONFIG.

    Raises:
        InvalidInput: one can't be read, or is none of a kubeconfig's.
    """
    merged = Merged(places)
    for place in places.split(os.pathsep):
        file = Path(os.path.expanduser(place)).absolute()  # noqa: PTH111 - Path's fails where there is no home
        if place and (top := _top(file)) is not None:
            merged.found = True
            merged.current = merged.current or top.text("current-context")
            for key, kind in _LISTS.items():
                for name, entry in _named(top, key, kind, file).items():
                    getattr(merged, key).setdefault(name, entry)
    return merged


def _top(file: Path) -> Entry | None:
    try:
        data = yaml.load(file.read_bytes(), _LOADER)  # noqa: S506 - a safe one
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{file} can't be used as a kubeconfig: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Without the line itself, which the error has too: it may be a secret.
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else ""
        raise InvalidInput(f"{file} can't be used as a kubeconfig: this is not YAML{where}") from None
    if data is not None and not isinstance(data, dict):
        raise InvalidInput(f"{file} can't be used as a kubeconfig: it is no table", help="kubectl config view")
    return Entry(str(file), file.parent, data or {})


def _named(top: Entry, key: str, kind: str, file: Path) -> dict[str, Entry]:
    """Return the entries of one list, such as `users`, by their names."""
    entries: dict[str, Entry] = {}
    for item in top.tables(key):
        name = item.text("name")
        if not name:
            raise item.wrong('it has no "name"')
        if name in entries:
            raise top.wrong(f'"{key}" has {quoted(name)} twice')
        data = item.plain(kind)
        if data is not None and not isinstance(data, dict):
            raise item.wrong(f'"{kind}" has to be a table')
        entries[name] = Entry(f"{kind} {quoted(name)} of {file}", file.parent, data or {})
    return entries
