"""The types of single values in a job file, with their checks and their JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfk8s.core import naming, programs, roles
from tfk8s.core.addresses import MAX_PORT
from tfk8s.core.job_file.spot import SPOT_NODES
from tfk8s.core.spec import MAX_TASKS
from tfk8s.core.storage.volumes import ACCESS_MODES
from tfk8s.errors import quoted
from tfk8s.jobfile import syntax, values
from tfk8s.jobfile.document import Path, subject
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.values import Invalid


class Type:
    """A type of values.

    Attributes:
        accepts: the Python types that a value of this type may have in a `Document`.
        expected: the name of this type in messages.
        json_schema: the JSON Schema of a value.
        absent: the value that an absent key stands for, or None.
    """

    accepts: tuple[type, ...]
    expected: str
    json_schema: dict[str, Any]
    absent: object = None

    def read(self, value: Any, path: Path, /) -> Any:
        """Return the meaning of a value at a path, which has one of the types in `accepts`.

        Raises:
            Invalid: the value is not valid.
        """
        raise NotImplementedError

    def suggest(self, _value: object, _text: str, /) -> str | None:
        """Return advice on a value of a type that is not accepted and that the file has as this text, or None."""
        return None


DEFINITIONS: dict[str, Any] = {}  # the types that references in the JSON Schema name, by these names


class Number(Type):
    """A whole number."""

    accepts = (int,)
    expected = "a whole number"

    def __init__(self, minimum: int, maximum: int, *, of: str = "", zero: str = "", whole: str = "") -> None:
        """Define a range; `of` precedes the key in messages; `zero` and `whole` are advice on 0 and fractions."""
        self.json_schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
        self._minimum, self._maximum = minimum, maximum
        self._of, self._zero, self._whole = of, zero, whole

    def read(self, number: Any, path: Path, /) -> Any:
        """Return the number."""
        if self._minimum <= number <= self._maximum:
            return number
        limit = f"at least {self._minimum}" if number < self._minimum else f"at most {self._maximum}"
        advice = self._zero if number == 0 else ""
        raise Invalid("out-of-range", f"{self._of}{subject(path)} can't be {number}", limit, advice or None)

    def suggest(self, value: object, _: str, /) -> str | None:
        """Return advice to write a plain number."""
        if isinstance(value, AmbiguousScalar):
            return "write a plain number, without leading zeros, signs or exponents"
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            return f"write {value}, without quotes"
        return self._whole or None


class Text(Type):
    """Text, which may have to match a pattern."""

    accepts = (str,)
    expected = "text"

    def __init__(
        self, pattern: str = "", limit: int = 0, *checks: Callable[[str], None], reserved: str | None = None
    ) -> None:
        """Define texts by one of `syntax.RULES`; `reserved` is the pattern of texts that the checks reject."""
        self.json_schema = {"type": "string"}
        if pattern:
            self.json_schema |= {"pattern": pattern, "maxLength": limit}
        if reserved:
            self.json_schema |= {"not": {"pattern": reserved}}
        self._pattern, self._limit, self._checks = pattern, limit, checks

    def read(self, text: Any, _: Path, /) -> Any:
        """Return the text."""
        if self._pattern:
            values.check_syntax(text, self._pattern, self._limit)
        for check in self._checks:
            check(text)
        return text

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write the value in quotes."""
        return f'write "{text}", in quotes' if isinstance(value, (bool, int, float, AmbiguousScalar)) else None


class Boolean(Type):
    """True or false."""

    accepts: tuple[type, ...] = (bool,)
    expected = "true or false"

    def __init__(self) -> None:
        self.json_schema = {"type": "boolean"}

    def read(self, boolean: Any, _: Path, /) -> Any:
        """Return the boolean."""
        return boolean

    def suggest(self, value: object, _: str, /) -> str | None:
        """Return advice to write the boolean that some parsers read."""
        if isinstance(value, AmbiguousScalar):
            return None if value.boolean is None else f"write {str(value.boolean).lower()}"
        return f"write {value}, without quotes" if value in ("true", "false") else None


class Constant(Type):
    """The one boolean that a pod's security allows."""

    accepts = (bool,)

    def __init__(self, boolean: bool) -> None:
        self.expected = str(boolean).lower()
        self.json_schema = {"const": boolean}
        self._boolean = boolean

    def read(self, boolean: Any, path: Path, /) -> Any:
        """Return the boolean."""
        if boolean == self._boolean:
            return boolean
        message = f"{subject(path)} can't be {str(boolean).lower()}"
        raise Invalid("bad-value", message, f"expected {self.expected}: {values.RESTRICTED}")


class Choice(Type):
    """One of a few words."""

    accepts = (str,)

    def __init__(self, *words: str) -> None:
        self.expected = " or ".join(words)
        self.json_schema = {"type": "string"} | ({"enum": list(words)} if len(words) > 1 else {"const": words[0]})
        self._words = words

    def read(self, word: Any, path: Path, /) -> Any:
        """Return the word."""
        if word in self._words:
            return word
        near = self._words[0] if len(self._words) == 1 else syntax.nearest(word, self._words)
        message = f"{subject(path)} can't be {quoted(word)}"
        raise Invalid("bad-value", message, f"expected {self.expected}", near and f"write {near}")


class BooleanOrWord(Boolean):
    """One of a few words, or a boolean: true is the first word, and false is None."""

    accepts = (bool, str)

    def __init__(self, *words: str) -> None:
        self._choice = Choice(*words)
        self.expected = self._choice.expected = f"true, false, {', '.join(words[:-1])} or {words[-1]}"
        self.json_schema = {"enum": [True, False, *words]}
        self._words = words

    def read(self, value: Any, path: Path, /) -> Any:
        """Return the word; None for false."""
        if isinstance(value, bool):
            return self._words[0] if value else None
        if value in ("true", "false"):
            message = f"{subject(path)} can't be text"
            raise Invalid("wrong-type", message, f"expected {self.expected}", self.suggest(value, value))
        return self._choice.read(value, path)


class Parsed(Type):
    """A number or a text that a function of `values` parses."""

    def __init__(
        self, parse: Callable[[Any], object], accepts: tuple[type, ...], expected: str, json_schema: dict[str, Any]
    ) -> None:
        self._parse, self.accepts, self.expected, self.json_schema = parse, accepts, expected, json_schema

    def read(self, value: Any, _: Path, /) -> Any:
        """Return the parsed value."""
        return self._parse(value)

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write the value in quotes, if the text is then valid."""
        if not isinstance(value, AmbiguousScalar):
            return None
        try:
            self._parse(text)
        except Invalid:
            return None
        return f'write "{text}", in quotes'


BOOLEAN = Boolean()

DRAIN = Choice(*roles.DRAINS)
KIND = Choice(roles.DATA)
ACCESS_MODE = Choice(*ACCESS_MODES)
SPOT = BooleanOrWord(*SPOT_NODES)
RESTART_SCOPE = Choice(*programs.RESTART_SCOPES)

COUNT = Number(1, MAX_TASKS)
TASKS = Number(1, MAX_TASKS, of="the tasks of ")
PORT = Number(1, MAX_PORT)
GPUS = Number(0, 1000, whole="write a whole number: Kubernetes allocates whole GPUs only")
RESTARTS = Number(0, 1000)
EXIT_CODE = Number(1, 255)
SECONDS = Number(0, values.MAX_SECONDS)
ID = Number(1, 2**31 - 1, zero="write another number: 0 is root, and processes in a pod must not run as root")

TEXT = Text()
NAME = Text(syntax.DNS_NAME, 253)
LABEL = Text(syntax.DNS_LABEL, 63)
IMAGE = Text(syntax.IMAGE, 512)
MODULE = Text(syntax.MODULE, 255)
ADDRESS = Text(syntax.ADDRESS, 320, values.address)
CIDR = Text(syntax.CIDR, 64, values.cidr)
MOUNT_PATH = Text(syntax.MOUNT_PATH, 4096, values.mount_path, reserved=values.RESERVED_PATH)
FOLDER = Text(syntax.FOLDER, 4096)
BUCKET = Text(syntax.BUCKET, 1024)
HISTORY_BUCKET = Text(syntax.HISTORY_BUCKET, 512)  # a name of an object has 1,024 bytes at most
ENDPOINT = Text(syntax.ENDPOINT, 300)
LABEL_KEY = Text(syntax.LABEL_KEY, 317)
LABEL_VALUE = Text(syntax.LABEL_VALUE, 63)
USER_LABEL_KEY = Text(syntax.LABEL_KEY, 317, values.label_key, reserved=values.RESERVED_LABEL)
GPU_RESOURCE = Text(syntax.GPU_RESOURCE, 317, values.resource, reserved=values.TPU)
RESOURCE = Text(syntax.LABEL_KEY, 317, values.resource, reserved=values.TPU)
ACCELERATOR = Text(syntax.ACCELERATOR, 63)
JOB_NAME = Text(syntax.JOB_NAME, naming.MAX_JOB_NAME)
CLUSTER_NAME = Text(syntax.CLUSTER_NAME, naming.MAX_DNS_LABEL)
QUEUE_NAME = Text(syntax.DNS_NAME, 63)  # the name becomes the value of a label
DATA_KEY = Text(syntax.DATA_KEY, 253)
TOPOLOGY_KEY = Text(syntax.TOPOLOGY_KEY, 317)
POD_ENV_NAME = Text(syntax.ENV_NAME, 255, values.pod_env_name, reserved=values.RESERVED_POD_ENV)
VOLUME_NAME = Text(syntax.DNS_LABEL, 63, values.volume_name, reserved=values.RESERVED_VOLUME)
CONTAINER_NAME = Text(syntax.DNS_LABEL, 63, values.container_name, reserved=values.RESERVED_CONTAINER)
ENV_NAME = Text(syntax.ENV_NAME, 255, values.env_name, reserved=values.RESERVED_ENV)

# Each accepts a number or a text. A JSON Schema's keyword applies to values of its own type only, so that the message
# of a JSON Schema validator is about the type that the user wrote.
CPU = Parsed(
    values.cpu,
    (int, float, str),
    values.CORES,
    {
        "type": ["number", "string"],
        "exclusiveMinimum": 0,
        "maximum": values.MAX_CORES,
        "pattern": syntax.QUANTITY,
        "maxLength": values.MAX_QUANTITY_LENGTH,
    },
)
AMOUNT = Parsed(
    values.amount,
    (int, float, str),
    values.AMOUNT,
    {"type": ["number", "string"], "minimum": 0, "pattern": syntax.QUANTITY},
)
SIZE = Parsed(
    values.size,
    (int, float, str),
    values.BYTES,
    {
        "type": ["integer", "string"],
        "minimum": values.MIN_BYTES,
        "maximum": values.MAX_BYTES,
        "pattern": syntax.QUANTITY,
        "maxLength": values.MAX_QUANTITY_LENGTH,
        "not": {"type": "string", "pattern": values.TOO_SMALL},
    },
)
DURATION = Parsed(
    values.duration,
    (int, str),
    "a number of seconds, or a duration such as 10m",
    {"type": ["integer", "string"], "minimum": 1, "maximum": values.MAX_SECONDS, "pattern": syntax.DURATION},
)
