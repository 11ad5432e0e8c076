"""The types of single values in a job file, for pydantic: how each is checked, and what the JSON Schema says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from tfk8s import naming
from tfk8s.jobfile import fields, rules
from tfk8s.quantity import Quantity
from tfk8s.spec import MAX_TASKS


class Text:
    """In `Annotated`: text of a syntax, which the JSON Schema states as a pattern.

    Not pydantic's own patterns, so that a message can say more than that one is broken.
    """

    def __init__(self, pattern: str, limit: int, *checks: Callable[[str], str], reserved: str | None = None) -> None:
        self._pattern, self._limit, self._checks, self._reserved = pattern, limit, checks, reserved

    def _check(self, text: str) -> str:
        fields.syntax(text, self._pattern, self._limit)
        for check in self._checks:
            check(text)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        forbidden = {"not": {"pattern": self._reserved}} if self._reserved else {}
        return handler(schema) | {"pattern": self._pattern, "maxLength": self._limit} | forbidden


Count = Annotated[int, Field(ge=1, le=MAX_TASKS)]
Port = Annotated[int, Field(ge=1, le=65535)]
Gpus = Annotated[int, Field(ge=0, le=1000)]
Seconds = Annotated[int, Field(ge=0, le=fields.MAX_SECONDS)]
Id = Annotated[int, Field(ge=1, le=2**31 - 1)]
Name = Annotated[str, Text(rules.DNS_NAME, 253)]
Label = Annotated[str, Text(rules.DNS_LABEL, 63)]
Image = Annotated[str, Text(rules.IMAGE, 512)]
Module = Annotated[str, Text(rules.MODULE, 255)]
Address = Annotated[str, Text(rules.ADDRESS, 320, fields.address)]
Cidr = Annotated[str, Text(rules.CIDR, 64, fields.cidr)]
MountPath = Annotated[str, Text(rules.MOUNT_PATH, 4096, fields.mount_path, reserved=fields.RESERVED_PATH)]
LabelKey = Annotated[str, Text(rules.LABEL_KEY, 317)]
LabelValue = Annotated[str, Text(rules.LABEL_VALUE, 63)]
OwnLabelKey = Annotated[str, Text(rules.LABEL_KEY, 317, fields.label_key, reserved=fields.RESERVED_LABEL)]
GpuResource = Annotated[str, Text(rules.GPU_RESOURCE, 317)]
Accelerator = Annotated[str, Text(rules.ACCELERATOR, 63)]
JobName = Annotated[str, Text(rules.JOB_NAME, naming.MAX_JOB_NAME)]
ClusterName = Annotated[str, Text(rules.CLUSTER_NAME, naming.MAX_DNS_LABEL)]
QueueName = Annotated[str, Text(rules.DNS_NAME, 63)]  # it becomes the value of a label
EnvName = Annotated[str, Text(rules.ENV_NAME, 255, fields.env_name, reserved=fields.RESERVED_ENV)]
Env = dict[EnvName, str]

# A number or a text each: a keyword of JSON Schema concerns values of its own type alone, so that a validator's message
# is about what was meant.
Cpu = Annotated[
    Quantity,
    PlainValidator(fields.cpu),
    WithJsonSchema({"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": rules.QUANTITY}),
]
Size = Annotated[
    Quantity,
    PlainValidator(fields.size),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "minimum": fields.MIN_BYTES,
            "maximum": fields.MAX_BYTES,
            "pattern": rules.QUANTITY,
            "not": {"type": "string", "pattern": fields.TOO_SMALL},
        }
    ),
]
Duration = Annotated[
    int,
    PlainValidator(fields.duration),
    WithJsonSchema(
        {"type": ["integer", "string"], "minimum": 1, "maximum": fields.MAX_SECONDS, "pattern": rules.DURATION}
    ),
]
