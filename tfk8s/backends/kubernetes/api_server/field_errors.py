"""The fields of an object that the API server refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

# Answers to an apply of an object with unknown fields, or with invalid quantities. Their status is 500.
_NOT_OF_SCHEMA = re.compile(
    r"failed to (?:create typed patch|convert new) object \((?:[^/)]*/)?(?P<name>[^;)]*);[^)]*\)"
    r"(?:: \.(?P<path>\S+)| to proper version: .*?Kind=\w+): (?P<problem>.*)",
    re.DOTALL,
)


class FieldError(NamedTuple):
    """A field of an object that the API server refuses.

    Attributes:
        path: of the field, such as "spec.template.spec.dnsPolicy"; "" if the API server does not say.
        problem: in the API server's words.
    """

    path: str
    problem: str


class InvalidFields(NamedTuple):
    """The fields of one object that the API server refuses.

    Attributes:
        name: the name of the object.
        fields: the fields.
    """

    name: str
    fields: tuple[FieldError, ...]


def outside_schema(message: str) -> InvalidFields | None:
    """Return the field that the API server's schema does not know, or None for another message."""
    match = _NOT_OF_SCHEMA.match(message)
    return match and InvalidFields(match["name"], (FieldError(match["path"] or "", match["problem"]),))


def invalid(details: Mapping[str, Any]) -> InvalidFields:
    """Return the invalid fields in the details of an answer."""
    causes = details.get("causes") or ()
    fields = (FieldError(cause.get("field", ""), cause.get("message", "")) for cause in causes)
    return InvalidFields(details.get("name", ""), tuple(fields))
