"""What pydantic finds wrong with a job file, in the words of its user."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile import fields, schema
from tfk8s.jobfile.document import Document, Path, Place
from tfk8s.jobfile.rules import strange_characters
from tfk8s.jobfile.scalars import Unclear
from tfk8s.jobfile.yamlfile import MAX_PROBLEMS

# What pydantic's errors of type say was expected.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "int_type": "a whole number",
    "job_type": "a number of tasks, a mapping, or a list of addresses",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "text",
}
_KINDS = {bool: "{raw}", int: "{raw}", float: "{raw}", str: "text", dict: "a mapping", list: "a list"}

# The keys of the mappings in a job file, by the key that holds them.
_MODELS: Mapping[str, type[BaseModel]] = {
    "": schema.JobFile,
    "jobs": schema.Job,
    "volumes": schema.Volume,
    "tolerations": schema.Toleration,
    "network": schema.Network,
    "allow_from": schema.Source,
    "allow_to": schema.Destination,
    "security": schema.Security,
}
_OTHER_WORDS = {"replicas": "tasks", "count": "tasks", "kind": "apiVersion"}
_EXAMPLES = {"apiVersion": "apiVersion: tfk8s.dev/v1", "name": "name: mnist", "jobs": "jobs: {worker: 2}"}


def translate(document: Document, errors: Iterable[Mapping[str, Any]]) -> list[tuple[Path, Problem]]:
    """Return what pydantic found, each with its path; the first MAX_PROBLEMS in the order of the file."""
    found = [_Finding(document, error) for error in errors]
    found = [finding for finding in found if not finding.is_known]
    found.sort(key=lambda finding: (finding.place.line, finding.place.column))
    del found[MAX_PROBLEMS + 1 :]
    meant = {finding.meant for finding in found if finding.kind == "extra_forbidden"}
    return [
        (finding.path, finding.problem()) for finding in found if finding.kind != "missing" or finding.path not in meant
    ]


class _Finding:
    """One error of pydantic's, and where it is in the file."""

    def __init__(self, document: Document, error: Mapping[str, Any]) -> None:
        self.document = document
        self.kind: str = error["type"]
        self.value: object = error["input"]
        self.context: Mapping[str, Any] = error.get("ctx", {})
        loc: Path = error["loc"]
        if loc[:1] == ("jobs",) and len(loc) > 2 and loc[2:] != ("[key]",):
            loc = (*loc[:2], *loc[3:])  # without the tag of the job's form
        self.is_key = loc[-1:] == ("[key]",) and loc not in document.values
        self.path = loc[:-1] if self.is_key else loc

    @property
    def is_known(self) -> bool:
        """Whether the place, or one around it, has a problem that says enough."""
        if self.kind == "missing" and (*self.path[:-1], "<<") in self.document.broken:
            return True
        return any(self.path[:length] in self.document.broken for length in range(len(self.path) + 1))

    @property
    def place(self) -> Place:
        document = self.document
        if self.kind == "missing":
            return document.values[self.path[:-1]]
        if (self.is_key or self.kind == "extra_forbidden") and self.path in document.keys:
            return document.keys[self.path]
        return document.values[self.path]

    @property
    def raw(self) -> str:
        """The value as it stands in the file."""
        place = self.document.values[self.path]
        return self.document.lines[place.line - 1][place.column - 1 :][: place.length]

    @property
    def subject(self) -> str:
        """What the value belongs to."""
        if not self.path:
            return "the job file"
        step = self.path[-1]
        if isinstance(step, str):
            return quoted(step)
        return f"an entry of {quoted(str(next(s for s in reversed(self.path) if isinstance(s, str))))}"

    @property
    def siblings(self) -> list[str]:
        """The keys that may stand beside the one that the path names."""
        holder = next((step for step in reversed(self.path[:-1]) if isinstance(step, str)), "")
        model = _MODELS["jobs" if self.path[:1] == ("jobs",) and len(self.path) == 3 else holder]
        return [field.alias or name for name, field in model.model_fields.items()]

    @property
    def meant(self) -> Path:
        """The path with the known key that is nearest to its last one, or itself."""
        return (*self.path[:-1], self._nearest_key() or self.path[-1])

    def _nearest_key(self) -> str | None:
        key, keys = str(self.path[-1]), self.siblings
        other = _OTHER_WORDS.get(key)
        return other if other in keys else next(iter(difflib.get_close_matches(key, keys, 1, 0.7)), None)

    def problem(self) -> Problem:
        if isinstance(self.value, Unclear) and self.kind != "extra_forbidden":
            return self._unclear(self.value)
        makers = {
            "missing": self._missing,
            "extra_forbidden": self._unknown_key,
            "value_error": self._refused,
            "greater_than_equal": self._out_of_range,
            "less_than_equal": self._out_of_range,
            "too_short": self._empty,
            "too_long": self._too_many,
            "literal_error": self._bad_value,
        }
        return makers.get(self.kind, self._wrong_type)()

    def _say(self, code: str, message: str, label: str = "", help: str | None = None) -> Problem:  # noqa: A002
        return self.document.problem(code, message, self.place, self.path, label=label, help=help)

    @property
    def expected(self) -> str:
        error = self.context.get("error")
        if isinstance(error, fields.WrongType):
            return error.expected
        if self.kind == "literal_error":
            return " or ".join(self._possible)
        return _EXPECTED.get(self.kind, "text")

    @property
    def _possible(self) -> list[str]:
        return re.findall(r"'([^']*)'", self.context["expected"])

    def _unclear(self, value: Unclear) -> Problem:
        if value.is_nothing:
            return self._say("no-value", f"{self.subject} has no value", f"expected {self.expected}")
        if self.kind == "bool_type" and value.truth is not None:
            write: str | None = f"write {str(value.truth).lower()}"
        elif self.kind in ("string_type", "value_error"):
            write = f'write "{value.text}", in quotes'
        elif self.kind in ("int_type", "job_type"):
            write = "write a plain number, without leading zeros, signs or exponents"
        else:
            write = None
        message = f"YAML parsers disagree on what {quoted(value.text)} means"
        return self._say("unclear", message, f"expected {self.expected}", write)

    def _missing(self) -> Problem:
        key = str(self.path[-1])
        example = _EXAMPLES.get(key, f"{key}: …")
        return self._say("missing-key", f"{self.subject} is missing", "expected beside this", f"write {example}")

    def _unknown_key(self) -> Problem:
        key = str(self.path[-1])
        nearest = self._nearest_key()
        if nearest:
            help = f"write {nearest}"  # noqa: A001
        elif len(self.path) == 1 and key in schema.Job.model_fields:
            help = f"it belongs to a job, as in jobs: {{worker: {{{key}: …}}}}"  # noqa: A001
        elif len(self.path) == 3 and key in schema.JobFile.model_fields:
            help = "it belongs to the whole file, beside jobs"  # noqa: A001
        else:
            help = f"the keys here are {', '.join(self.siblings)}"  # noqa: A001
        strange = strange_characters(key)
        return self._say("unknown-key", f"there is no key {quoted(key)} here", strange and f"{strange} is in it", help)

    def _refused(self) -> Problem:
        error = self.context["error"]
        if isinstance(error, fields.Refused):
            return self._say(error.code, str(error), error.label, error.help)
        return self._wrong_type()

    def _out_of_range(self) -> Problem:
        limit = f"at least {self.context['ge']}" if "ge" in self.context else f"at most {self.context['le']}"
        subject = f"the tasks of {self.subject}" if self.path[:-1] == ("jobs",) else self.subject
        root = self.value == 0 and self.path[-1] in ("user", "group")
        advice = "0 is root, which nothing in a pod may be" if root else None
        return self._say("out-of-range", f"{subject} can't be {self.value}", limit, advice)

    def _empty(self) -> Problem:
        return self._say("empty", f"{self.subject} is empty", "expected at least one entry")

    def _too_many(self) -> Problem:
        limit = self.context["max_length"]
        return self._say("too-many", f"{self.subject} has more than {limit} entries", f"at most {limit}")

    def _bad_value(self) -> Problem:
        if not isinstance(self.value, str):
            return self._wrong_type()
        near = self._possible if len(self._possible) == 1 else difflib.get_close_matches(self.value, self._possible, 1)
        message = f"{quoted(self.value)} is no value of {self.subject}"
        return self._say("bad-value", message, f"expected {self.expected}", f"write {near[0]}" if near else None)

    def _wrong_type(self) -> Problem:
        kind = _KINDS[type(self.value)].format(raw=self.raw)
        return self._say(
            "wrong-type", f"{self.subject} can't be {kind}", f"expected {self.expected}", self._rewritten()
        )

    def _rewritten(self) -> str | None:
        """Return how the same value is written in the type that is expected, or why it can't be."""
        value, expected = self.value, self.expected
        if expected == "text" and isinstance(value, (bool, int, float)):
            return f'write "{self.raw}", in quotes'
        if isinstance(value, str) and (
            value.isascii() and value.isdecimal() if "number" in expected else value in ("true", "false")
        ):
            return f"write {value}, without quotes"
        if expected == "a list" and isinstance(value, str):
            return f"write [{self.raw}]"
        return "Kubernetes gives a task whole GPUs only" if self.path[-1:] == ("gpus",) else None
