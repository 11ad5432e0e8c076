"""The types of values whose form Kubernetes defines: any value, and mappings with some known keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfk8s.errors import quoted
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.types import DEFINITIONS
from tfk8s.jobfile.validation import Container, Key, Struct, Validator
from tfk8s.jobfile.values import Invalid

_DIRECTIVE = r"^\$"  # the keys that tell `kubectl patch` how to merge, such as $patch


def _is_directive(key: str, path: Path, validator: Validator) -> bool:
    """Return whether a key tells `kubectl patch` how to merge; the key is then added as a problem."""
    if not key.startswith("$"):
        return False
    label = "tfk8s merges pod without directives of kubectl"
    validator.add_key(Invalid("reserved-key", f"{quoted(key)} is not allowed here", label), path)
    return True


class Anything(Container):
    """A value of any form, which Kubernetes defines, without directives of `kubectl patch`."""

    accepts = (str, int, float, bool, list, dict)
    expected = "a value"
    name = "Anything"
    json_schema: dict[str, Any] = {"$ref": "#/$defs/Anything"}  # noqa: RUF012 - nobody changes it

    def definition(self) -> dict[str, Any]:
        """Return the definition that `json_schema` refers to."""
        return {
            "title": self.name,
            "description": "A value of a form that Kubernetes defines.",
            "patternProperties": {_DIRECTIVE: False},
            "additionalProperties": self.json_schema,
            "items": self.json_schema,
        }

    def read_entries(self, value: Any, path: Path, validator: Validator, /) -> Any:
        """Return the value as the file has it."""
        if isinstance(value, dict):
            for key in value:
                if not _is_directive(key, (*path, key), validator):
                    validator.read(self, value[key], (*path, key))
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                validator.read(self, entry, (*path, index))
        return value

    def suggest(self, _: object, text: str, /) -> str | None:
        """Return advice to write the value in quotes."""
        return f'write "{text}", in quotes' if text else None


ANYTHING = DEFINITIONS[Anything.name] = Anything()


class OpenStruct(Struct):
    """A part of a pod's spec: a mapping with any keys, of which some have types, and some are reserved.

    Its meaning is the mapping as the file has it.
    """

    reports_unknown = False

    def __init__(
        self, name: str, description: str, keys: dict[str, Key], *, reserved: Mapping[str, str] | None = None
    ) -> None:
        """Define a struct.

        Args:
            name: the JSON Schema's title.
            description: the JSON Schema's description.
            keys: the keys with types.
            reserved: the reasons why other keys are not allowed.
        """
        super().__init__(name, description, keys)
        self._reserved = reserved or {}

    def definition(self) -> dict[str, Any]:
        """Return the definition that `json_schema` refers to."""
        # Validators name the path of a forbidden value, but not that of a forbidden name.
        reserved = {f"^({'|'.join(self._reserved)})$": False} if self._reserved else {}
        names = {"patternProperties": {_DIRECTIVE: False, **reserved}}
        return super().definition() | names | {"additionalProperties": ANYTHING.json_schema}

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the mapping."""
        super().read_entries(entries, path, validator)
        return entries

    def _read_entry(self, key: str, entries: Mapping[str, object], path: Path, validator: Validator) -> Any:
        if key in self.keys:
            return super()._read_entry(key, entries, path, validator)
        if key in self._reserved:
            invalid = Invalid("reserved-key", f"{quoted(key)} is not allowed here", self._reserved[key])
            validator.add_key(invalid, path)
            return None
        return None if _is_directive(key, path, validator) else validator.read(ANYTHING, entries[key], path)
