"""The types of single values in a job file: how each is checked, and what the JSON Schema says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfk8s.core import naming
from tfk8s.core.spec import MAX_TASKS
from tfk8s.errors import quoted
from tfk8s.jobfile import syntax, values
from tfk8s.jobfile.document import Path, subject
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.values import Invalid

if TYPE_CHECKING:
    from tfk8s.jobfile.validation import Validator


class Type:
    """A type of values.

    Attributes:
        takes: the types that they have.
        expected: what messages call them.
        schema: what the JSON Schema says.
        absent: what it means that there is none, or None.
    """

    takes: tuple[type, ...]
    expected: str
    schema: dict[str, Any]
    absent: object = None

    def read(self, value: Any, path: Path, report: Validator, /) -> Any:
        """Return what a value means, which is of one of the types, and stands at a path.

        Raises:
            Refused: it can't be. What is wrong inside of it goes to the report instead.
        """
        raise NotImplementedError

    def rewritten(self, _value: object, _text: str, /) -> str | None:
        """Return how to write a value of another type, which stands in the file as that text; or None."""
        return None


class Number(Type):
    """A whole number."""

    takes = (int,)
    expected = "a whole number"

    def __init__(self, least: int, most: int, *, of: str = "", zero: str = "", whole: str = "") -> None:
        """Make one: `of` is said before its name, `zero` why it can't be 0, `whole` why it can't be any but whole."""
        self.schema = {"type": "integer", "minimum": least, "maximum": most}
        self._least, self._most = least, most
        self._of, self._zero, self._whole = of, zero, whole

    def read(self, number: Any, path: Path, _: Validator, /) -> Any:
        """Return the number."""
        if self._least <= number <= self._most:
            return number
        limit = f"at least {self._least}" if number < self._least else f"at most {self._most}"
        advice = self._zero if number == 0 else ""
        raise Invalid("out-of-range", f"{self._of}{subject(path)} can't be {number}", limit, advice or None)

    def rewritten(self, value: object, _: str, /) -> str | None:
        """Return the number that a text is."""
        if isinstance(value, AmbiguousScalar):
            return "write a plain number, without leading zeros, signs or exponents"
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            return f"write {value}, without quotes"
        return self._whole or None


class Text(Type):
    """Text: any, or of a syntax, which the JSON Schema states as a pattern."""

    takes = (str,)
    expected = "text"

    def __init__(
        self, pattern: str = "", limit: int = 0, *checks: Callable[[str], str], reserved: str | None = None
    ) -> None:
        """Make one: `reserved` says to the JSON Schema what the checks refuse."""
        self.schema = {"type": "string"}
        if pattern:
            self.schema |= {"pattern": pattern, "maxLength": limit}
        if reserved:
            self.schema |= {"not": {"pattern": reserved}}
        self._pattern, self._limit, self._checks = pattern, limit, checks

    def read(self, text: Any, _path: Path, _report: Validator, /) -> Any:
        """Return the text."""
        if self._pattern:
            values.syntax(text, self._pattern, self._limit)
        for check in self._checks:
            check(text)
        return text

    def rewritten(self, value: object, text: str, /) -> str | None:
        """Return the text that a number or a truth value would be."""
        return f'write "{text}", in quotes' if isinstance(value, (bool, int, float, AmbiguousScalar)) else None


class Boolean(Type):
    """True or false."""

    takes = (bool,)
    expected = "true or false"

    def __init__(self) -> None:
        self.schema = {"type": "boolean"}

    def read(self, truth: Any, _path: Path, _report: Validator, /) -> Any:
        """Return it."""
        return truth

    def rewritten(self, value: object, _: str, /) -> str | None:
        """Return the truth value that a text, or what some parsers read as one, is."""
        if isinstance(value, AmbiguousScalar):
            return None if value.truth is None else f"write {str(value.truth).lower()}"
        return f"write {value}, without quotes" if value in ("true", "false") else None


class Choice(Type):
    """One of a few words."""

    takes = (str,)

    def __init__(self, *words: str) -> None:
        self.expected = " or ".join(words)
        self.schema = {"type": "string"} | ({"enum": list(words)} if len(words) > 1 else {"const": words[0]})
        self._words = words

    def read(self, word: Any, path: Path, _: Validator, /) -> Any:
        """Return the word."""
        if word in self._words:
            return word
        near = self._words[0] if len(self._words) == 1 else syntax.nearest(word, self._words)
        message = f"{quoted(word)} is no value of {subject(path)}"
        raise Invalid("bad-value", message, f"expected {self.expected}", near and f"write {near}")


class Parsed(Type):
    """A number or a text that says how much, as a function of `fields` reads it."""

    def __init__(
        self, read: Callable[[Any], object], takes: tuple[type, ...], expected: str, schema: dict[str, Any]
    ) -> None:
        self._read, self.takes, self.expected, self.schema = read, takes, expected, schema

    def read(self, amount: Any, _path: Path, _report: Validator, /) -> Any:
        """Return how much it is."""
        return self._read(amount)

    def rewritten(self, value: object, text: str, /) -> str | None:
        """Return the text that what parsers disagree on would be."""
        return f'write "{text}", in quotes' if isinstance(value, AmbiguousScalar) else None


BOOLEAN = Boolean()

COUNT = Number(1, MAX_TASKS)
TASKS = Number(1, MAX_TASKS, of="the tasks of ")
PORT = Number(1, 65535)
GPUS = Number(0, 1000, whole="Kubernetes gives a task whole GPUs only")
SECONDS = Number(0, values.MAX_SECONDS)
ID = Number(1, 2**31 - 1, zero="0 is root, which nothing in a pod may be")

TEXT = Text()
NAME = Text(syntax.DNS_NAME, 253)
LABEL = Text(syntax.DNS_LABEL, 63)
IMAGE = Text(syntax.IMAGE, 512)
MODULE = Text(syntax.MODULE, 255)
ADDRESS = Text(syntax.ADDRESS, 320, values.address)
CIDR = Text(syntax.CIDR, 64, values.cidr)
MOUNT_PATH = Text(syntax.MOUNT_PATH, 4096, values.mount_path, reserved=values.RESERVED_PATH)
LABEL_KEY = Text(syntax.LABEL_KEY, 317)
LABEL_VALUE = Text(syntax.LABEL_VALUE, 63)
OWN_LABEL_KEY = Text(syntax.LABEL_KEY, 317, values.label_key, reserved=values.RESERVED_LABEL)
GPU_RESOURCE = Text(syntax.GPU_RESOURCE, 317)
ACCELERATOR = Text(syntax.ACCELERATOR, 63)
JOB_NAME = Text(syntax.JOB_NAME, naming.MAX_JOB_NAME)
CLUSTER_NAME = Text(syntax.CLUSTER_NAME, naming.MAX_DNS_LABEL)
QUEUE_NAME = Text(syntax.DNS_NAME, 63)  # it becomes the value of a label
ENV_NAME = Text(syntax.ENV_NAME, 255, values.env_name, reserved=values.RESERVED_ENV)

# A number or a text each: a keyword of JSON Schema concerns values of its own type alone, so that a validator's message
# is about what was meant.
CPU = Parsed(
    values.cpu,
    (int, float, str),
    values.CORES,
    {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": syntax.QUANTITY},
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
        "not": {"type": "string", "pattern": values.TOO_SMALL},
    },
)
DURATION = Parsed(
    values.duration,
    (int, str),
    "a number of seconds, or a duration such as 10m",
    {"type": ["integer", "string"], "minimum": 1, "maximum": values.MAX_SECONDS, "pattern": syntax.DURATION},
)
