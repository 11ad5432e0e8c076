"""The JSON Schema of job files, made from the models of `schema`: for editors, and for Helm's values."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tfk8s.jobfile.schema import JobFile

_FORMS = (
    "A number of tasks, a mapping that says more, or a list of where the servers already run, by index; then all jobs "
    "have addresses."
)


class _Generator(GenerateJsonSchema):
    """Says that a key may be absent where pydantic says that it may be null, and what keys of maps look like."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        generated = super().default_schema(schema)
        if generated.get("default", "") is None:
            del generated["default"]
        return generated

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        keys = self.generate_inner(schema["keys_schema"])
        generated = {
            "type": "object",
            "propertyNames": keys,
            "additionalProperties": self.generate_inner(schema["values_schema"]),
        }
        limits = {"minProperties": schema.get("min_length"), "maxProperties": schema.get("max_length")}
        return generated | {name: limit for name, limit in limits.items() if limit is not None}

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the forms of a job, each under keywords of its own type: messages are then about the one meant."""
        count, addresses, job = (self.generate_inner(schema["choices"][tag]) for tag in ("count", "addresses", "map"))
        types = {"type": ["integer", "array", "object"], "if": {"type": "object"}, "then": job}
        return {**count, **addresses, **types, "description": _FORMS}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobFile.model_json_schema(schema_generator=_Generator),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
