"""What is wrong with the values of a job file, in the words of its user."""

from __future__ import annotations

from typing import Any

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Path, Place, subject
from tfk8s.jobfile.fields import Refused
from tfk8s.jobfile.kinds import Kind
from tfk8s.jobfile.scalars import Unclear

_WORDS: dict[type, str] = {str: "text", dict: "a mapping", list: "a list"}


class Report:
    """What reading a document's values finds, in the order of the file.

    Attributes:
        document: where they stand.
        bad: the paths of all that are not right.
        problems: what is wrong, as far as anybody will read.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.bad: set[Path] = set()
        self.problems: list[Problem] = []

    @property
    def is_full(self) -> bool:
        """Whether nobody will read more."""
        return len(self.problems) > MAX_PROBLEMS

    def read(self, kind: Kind, value: object, path: Path, *, is_key: bool = False) -> Any:
        """Return what a value means, or the key that the path ends in; None where it is wrong, and has been said."""
        if path in self.document.broken:
            self.bad.add(path)
            return None
        try:
            if type(value) not in kind.takes:
                raise self._wrong_type(kind, value, path)
            return kind.read(value, path, self)
        except Refused as refused:
            self.add(refused, path, (self.document.keys if is_key else self.document.values)[path])
            return None

    def add(self, refused: Refused, path: Path, place: Place) -> None:
        """Say that what is, or should be, at a path is wrong."""
        self.bad.add(path)
        if not self.is_full:
            message = str(refused)
            self.problems.append(
                self.document.problem(refused.code, message, place, path, label=refused.label, help=refused.help)
            )

    def _wrong_type(self, kind: Kind, value: object, path: Path) -> Refused:
        raw, label = self.document.raw(path), f"expected {kind.expected}"
        if not isinstance(value, Unclear):
            message = f"{subject(path)} can't be {_WORDS.get(type(value), raw)}"
            return Refused("wrong-type", message, label, kind.rewritten(value, raw))
        if value.is_nothing:
            return Refused("no-value", f"{subject(path)} has no value", label)
        message = f"YAML parsers disagree on what {quoted(value.text)} means"
        return Refused("unclear", message, label, kind.rewritten(value, value.text))
