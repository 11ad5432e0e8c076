"""Parsers of values that need more than a pattern: quantities, durations, addresses, reserved names."""

from __future__ import annotations

import posixpath
import re
from decimal import Decimal

from tfk8s.core.naming import CONTAINERS
from tfk8s.core.quantity import Quantity
from tfk8s.errors import quoted
from tfk8s.jobfile import syntax

MAX_SECONDS = 2**31 - 1
MAX_QUANTITY_LENGTH = 64
MIN_CORES = Decimal("0.001")
MAX_CORES = 1_000_000  # more than a machine has, and a number that every reader of the objects takes
MIN_BYTES = 1 << 20
MAX_BYTES = 2**63 - 1
CORES = "a number of cores, such as 2 or 500m"
AMOUNT = "a Kubernetes quantity, such as 2, 500m or 4Gi"
BYTES = "a number of bytes, such as 4Gi or 512Mi"
TOO_SMALL = "[num]$|^[0-9.]{1,6}$"  # texts for fractions of bytes, or for at most 999,999 bytes

# The folders that tfk8s mounts into tasks.
MOUNTED_FOLDERS = ("/opt/tfk8s", "/tmp", "/work")  # noqa: S108 - not used as a file here
# A pattern of all spellings of paths that hide these folders or are in the first one, and of paths with "..".
RESERVED_PATH = r"(^|/)\.\.(/|$)|^/(\.?/)*(\.?|(opt|tmp|work|opt/(\.?/)*tfk8s)(/(\.?/)*\.?)?|opt/(\.?/)*tfk8s/.*)$"
RESERVED_ENV = "^(TF_CONFIG$|TFK8S_)"
RESERVED_POD_ENV = "^(TF_CONFIG$|TFK8S_|PYTHONPATH$)"
RESERVED_VOLUME = "^(tfk8s|scratch|shm|work|volume-[0-9]+)$"
RESERVED_CONTAINER = f"^({'|'.join(CONTAINERS)})$"
RESTRICTED = "the pods meet the pod security standard `restricted`"
TPU = r"^(google\.com/tpu|cloud-tpus\.google\.com/.*)$"  # resources of GKE
RESERVED_LABEL = r"^(app\.kubernetes\.io|tfk8s\.dev)/"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NEAR_QUANTITY = re.compile(r"([0-9.]+) *([kmgtpe])i?(b|bytes?)?", re.IGNORECASE)


class Invalid(Exception):
    """A value is not valid."""

    def __init__(self, code: str, message: str, label: str = "", advice: str | None = None) -> None:
        super().__init__(message)
        self.code, self.label, self.advice = code, label, advice


def check_syntax(text: str, pattern: str, limit: int) -> None:
    """Check that a text matches a pattern of `syntax.RULES`, and its length."""
    rule = syntax.RULES[pattern]
    if not re.fullmatch(pattern, text) or text.endswith("\n"):
        strange = syntax.strange_characters(text)
        suggestion = syntax.suggestion(pattern, text, limit)
        expected = f"{strange} is not allowed; expected {rule.expected}" if strange else rule.expected
        raise Invalid(rule.code, f"{quoted(text)} is not {rule.noun}", expected, suggestion and f"write {suggestion}")
    if len(text) > limit:
        more = len(text) - limit
        message = f"{quoted(text)} has {len(text)} characters"
        raise Invalid("name-too-long", message, f"at most {limit}", f"remove {more} character{'s' * (more > 1)}")


def number_text(value: int | float) -> str:
    """Return a number as Helm writes it: 2 for 2.0."""
    return format(Decimal(repr(value)).normalize(), "f") if isinstance(value, float) else str(value)


def cpu(value: int | float | str) -> Quantity:
    """Parse a number of cores."""
    quantity = _quantity(value, CORES)
    if quantity.value > MAX_CORES:
        raise Invalid("bad-quantity", f"{quoted(quantity.text)} is too large", f"at most {MAX_CORES} cores")
    if quantity.value < MIN_CORES or not _is_whole(quantity.value, 1000):
        raise Invalid(
            "bad-quantity", f"{quoted(quantity.text)} is not a number of cores", "at least 1m, in steps of 1m"
        )
    return quantity


def _is_whole(value: Decimal, parts: int = 1) -> bool:
    """Return whether a number is a multiple of one `parts`-th. Decimal's own `%` fails for large numbers."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * parts % denominator == 0


def size(value: int | float | str) -> Quantity:
    """Parse a number of bytes."""
    quantity = _quantity(value, BYTES)
    if quantity.value > MAX_BYTES:
        raise Invalid("bad-quantity", f"{quoted(quantity.text)} is too large", "at most 8Ei")
    if quantity.value < MIN_BYTES:
        # Users mean 4Gi by 4, 2048Mi by 2048, and 400Mi by 400m (0.4 bytes).
        match = re.fullmatch(r"([0-9.]+)(m?)", quantity.text)
        unit = "Gi" if 1 <= quantity.value < 256 else "Mi"
        advice = f"write {match[1]}{unit}" if match and quantity.value else None
        label = "the suffix m means thousandths" if match and match[2] else "a number without a unit means bytes"
        raise Invalid("bad-quantity", f"{quoted(quantity.text)} is less than 1 MiB", label, advice)
    if re.search("[num]$", quantity.text) or (isinstance(value, float) and not _is_whole(quantity.value)):
        raise Invalid("bad-quantity", f"{quoted(quantity.text)} is not a number of bytes", "expected whole bytes")
    return quantity


def amount(value: int | float | str) -> Quantity:
    """Parse an amount of any resource."""
    return _quantity(value, AMOUNT)


def _quantity(value: int | float | str, expected: str) -> Quantity:
    text = value if isinstance(value, str) else number_text(value)
    if len(text) > MAX_QUANTITY_LENGTH:
        raise Invalid("bad-quantity", f"{quoted(text)} is not a quantity", f"at most {MAX_QUANTITY_LENGTH} characters")
    try:
        return Quantity.parse(text)
    except ValueError as error:
        near = None if expected == CORES else _NEAR_QUANTITY.fullmatch(text)
        unit = near[2].upper() if near else ""
        advice = f"write {near[1]}{unit}i or {near[1]}{unit.replace('K', 'k')}" if near else None
        raise Invalid("bad-quantity", f"{quoted(text)} is not a quantity", f"expected {expected}", advice) from error


def duration(value: int | str) -> int:
    """Parse a duration, and return the seconds."""
    if isinstance(value, str):
        if not re.fullmatch(syntax.DURATION, value):
            label = "expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d"
            raise Invalid("bad-duration", f"{quoted(value)} is not a duration", label)
        return int(value[:-1]) * _SECONDS[value[-1]]
    if not 1 <= value <= MAX_SECONDS:
        raise Invalid("out-of-range", f"{value} is out of range", f"expected 1 to {MAX_SECONDS} seconds")
    return value


def address(value: str) -> None:
    """Check the IPv6 address in the brackets of HOST:PORT."""
    if value.startswith("["):
        import ipaddress

        try:
            ipaddress.IPv6Address(value[1 : value.index("]")])
        except ValueError as error:
            label = "expected an IPv6 address in the brackets, such as [fd00::5]:2222"
            raise Invalid("bad-address", f"{quoted(value)} is not an address", label) from error


def cidr(value: str) -> None:
    """Check a range of addresses."""
    import ipaddress

    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        label = "expected a range such as 10.0.0.0/8"
        raise Invalid("bad-cidr", f"{quoted(value)} is not a range of addresses", label) from error
    if network.network_address != ipaddress.ip_address(value.partition("/")[0]):
        message = f"{quoted(value)} is not a range of addresses"
        raise Invalid("bad-cidr", message, "the address has bits set after the prefix", f"write {network}")


def mount_path(value: str) -> None:
    """Check that a volume does not hide a folder that tfk8s mounts."""
    if ".." in value.split("/"):
        raise Invalid("bad-path", f"{quoted(value)} is not a path in a container", 'expected a path without ".."')
    path = normal_path(value)
    for folder in MOUNTED_FOLDERS:
        if f"{folder}/".startswith(f"{path.rstrip('/')}/"):
            raise Invalid("reserved-path", f"{quoted(value)} would hide {folder}, where tfk8s mounts its files")
    if path.startswith("/opt/tfk8s/"):
        raise Invalid("reserved-path", f"{quoted(value)} is in /opt/tfk8s, where tfk8s mounts its files")


def normal_path(value: str) -> str:
    """Return the normal spelling of a path."""
    return "/" + posixpath.normpath(value).strip("/")


def env_name(value: str) -> None:
    """Check that tfk8s does not set an environment variable itself."""
    _require_free(value, RESERVED_ENV, "set by tfk8s", "TF_CONFIG and names with the prefix TFK8S_ are reserved")


def pod_env_name(value: str) -> None:
    """Check that tfk8s does not set an environment variable itself, not even a part of the value."""
    _require_free(value, "^PYTHONPATH$", "set by tfk8s", "write env: {PYTHONPATH: …} as a key of the job")
    env_name(value)


def volume_name(value: str) -> None:
    """Check that tfk8s does not make a volume with this name itself."""
    _require_free(value, RESERVED_VOLUME, "a volume of tfk8s", "expected another name")


def container_name(value: str) -> None:
    """Check that tfk8s does not make a container with this name itself."""
    _require_free(value, RESERVED_CONTAINER, "a container of tfk8s", "expected another name")


def label_key(value: str) -> None:
    """Check that tfk8s does not set a label or annotation itself."""
    prefix = value.partition("/")[0]
    _require_free(value, RESERVED_LABEL, "set by tfk8s", f"names with the prefix {prefix}/ are reserved")


def resource(value: str) -> None:
    """Check that a resource is none of Google's TPUs."""
    if re.search(TPU, value):
        message = f"{quoted(value)} is a TPU, and tfk8s starts no servers for TPUs"
        raise Invalid("out-of-scope", message, "docs/scope.md says why, and names other tools")


def _require_free(name: str, reserved: str, meaning: str, label: str) -> None:
    """Raise an Invalid for a name that matches a pattern of reserved names."""
    if re.search(reserved, name):
        raise Invalid("reserved-name", f"{quoted(name)} is {meaning}", label)
