"""Single values of a job file that a pattern can't judge: quantities, durations, addresses, reserved names."""

from __future__ import annotations

import posixpath
import re
from decimal import Decimal
from typing import NoReturn

from tfk8s.core.quantity import Quantity
from tfk8s.errors import quoted
from tfk8s.jobfile import syntax as syntax_module

MAX_SECONDS = 2**31 - 1
MIN_BYTES = 1 << 20
MAX_BYTES = 2**63 - 1
CORES = "a number of cores, such as 2 or 500m"
BYTES = "a number of bytes, such as 4Gi or 512Mi"
TOO_SMALL = "[num]$|^[0-9.]{1,6}$"  # texts that are fractions of bytes, or at most 999,999 bytes

# Where tfk8s itself mounts something into tasks.
OWN_FOLDERS = ("/opt/tfk8s", "/tmp", "/work")  # noqa: S108 - not used as a file here
# The same as a pattern, whichever way a path is written: what would hide them, what is in the first, and "..".
RESERVED_PATH = r"(^|/)\.\.(/|$)|^/(\.?/)*(\.?|(opt|tmp|work|opt/(\.?/)*tfk8s)(/(\.?/)*\.?)?|opt/(\.?/)*tfk8s/.*)$"
RESERVED_ENV = "^(TF_CONFIG$|TFK8S_)"
RESERVED_LABEL = r"^(app\.kubernetes\.io|tfk8s\.dev)/"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NEAR_QUANTITY = re.compile(r"([0-9.]+) *([kmgtpe])i?(b|bytes?)?", re.IGNORECASE)


class Invalid(Exception):
    """A value that can't be."""

    def __init__(self, code: str, message: str, label: str = "", help: str | None = None) -> None:  # noqa: A002
        super().__init__(message)
        self.code, self.label, self.help = code, label, help


def syntax(text: str, pattern: str, limit: int) -> None:
    """Check the syntax of a name, whose pattern is one of `rules`, and its length."""
    rule = syntax_module.RULES[pattern]
    if not re.fullmatch(pattern, text) or text.endswith("\n"):
        strange = syntax_module.strange_characters(text)
        suggestion = syntax_module.suggestion(pattern, text, limit)
        expected = f"{strange} can't stand in it; expected {rule.expected}" if strange else rule.expected
        raise Invalid(rule.code, f"{quoted(text)} is not {rule.noun}", expected, suggestion and f"write {suggestion}")
    if len(text) > limit:
        too_long(text, limit)


def too_long(text: str, limit: int) -> NoReturn:
    """Refuse a name that is too long."""
    more = len(text) - limit
    message = f"{quoted(text)} has {len(text)} characters"
    raise Invalid("name-too-long", message, f"at most {limit}", f"remove {more} character{'s' * (more > 1)}")


def number_text(value: int | float) -> str:
    """Return a number as Helm writes it, which reads it from JSON: 2.0 is 2."""
    return format(Decimal(repr(value)).normalize(), "f") if isinstance(value, float) else str(value)


def cpu(value: int | float | str) -> Quantity:
    """Read a number of cores."""
    amount = _quantity(value, CORES)
    if amount.value * 1000 % 1 or not 0 < amount.value <= MAX_BYTES / 1000:
        raise Invalid("bad-quantity", f"{quoted(amount.text)} is not a number of cores", "at least 1m, in steps of 1m")
    return amount


def size(value: int | float | str) -> Quantity:
    """Read a number of bytes."""
    amount = _quantity(value, BYTES)
    if amount.value > MAX_BYTES:
        raise Invalid("bad-quantity", f"{quoted(amount.text)} is too much", "at most 8Ei")
    if amount.value < MIN_BYTES:
        # 4 was meant as 4Gi, 2048 as 2048Mi, and 400m (0.4 bytes) as 400Mi.
        match = re.fullmatch(r"([0-9.]+)(m?)", amount.text)
        unit = "Gi" if 1 <= amount.value < 256 else "Mi"
        advice = f"write {match[1]}{unit}" if match and amount.value else None
        label = "m is a thousandth" if match and match[2] else "a number without unit is bytes"
        raise Invalid("bad-quantity", f"{quoted(amount.text)} is less than 1 MiB", label, advice)
    if re.search("[num]$", amount.text) or (isinstance(value, float) and amount.value % 1):
        raise Invalid("bad-quantity", f"{quoted(amount.text)} is not a number of bytes", "expected whole bytes")
    return amount


def _quantity(value: int | float | str, expected: str) -> Quantity:
    text = value if isinstance(value, str) else number_text(value)
    try:
        return Quantity.parse(text)
    except ValueError as error:
        near = None if expected == CORES else _NEAR_QUANTITY.fullmatch(text)
        unit = near[2].upper() if near else ""
        advice = f"write {near[1]}{unit}i or {near[1]}{unit.replace('K', 'k')}" if near else None
        raise Invalid("bad-quantity", f"{quoted(text)} is not a quantity", f"expected {expected}", advice) from error


def duration(value: int | str) -> int:
    """Read a duration, and return it in seconds."""
    if isinstance(value, str):
        if not re.fullmatch(syntax_module.DURATION, value):
            label = "expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d"
            raise Invalid("bad-duration", f"{quoted(value)} is not a duration", label)
        return int(value[:-1]) * _SECONDS[value[-1]]
    if not 1 <= value <= MAX_SECONDS:
        raise Invalid("out-of-range", f"{value} is out of range", f"from 1 second to {MAX_SECONDS}")
    return value


def address(value: str) -> str:
    """Check what stands in brackets in HOST:PORT."""
    if value.startswith("["):
        import ipaddress

        try:
            ipaddress.IPv6Address(value[1 : value.index("]")])
        except ValueError as error:
            label = "in brackets stands an IPv6 address, such as [fd00::5]:2222"
            raise Invalid("bad-address", f"{quoted(value)} is not an address", label) from error
    return value


def cidr(value: str) -> str:
    """Check a range of addresses."""
    import ipaddress

    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        label = "expected a range such as 10.0.0.0/8"
        raise Invalid("bad-cidr", f"{quoted(value)} is not a range of addresses", label) from error
    if network.network_address != ipaddress.ip_address(value.partition("/")[0]):
        message = f"{quoted(value)} is not a range of addresses"
        raise Invalid("bad-cidr", message, "it has bits set after the prefix", f"write {network}")
    return value


def mount_path(value: str) -> str:
    """Check that a volume hides nothing that tfk8s itself mounts."""
    if ".." in value.split("/"):
        raise Invalid("bad-path", f"{quoted(value)} is not a path in a container", 'no ".." in it')
    path = normal_path(value)
    for own in OWN_FOLDERS:
        if f"{own}/".startswith(f"{path.rstrip('/')}/"):
            raise Invalid("reserved-path", f"{quoted(value)} would hide {own}, where tfk8s mounts its own")
    if path.startswith("/opt/tfk8s/"):
        raise Invalid("reserved-path", f"{quoted(value)} is in /opt/tfk8s, where tfk8s mounts its own")
    return value


def normal_path(value: str) -> str:
    """Return a path in the one way to write it."""
    return "/" + posixpath.normpath(value).strip("/")


def env_name(value: str) -> str:
    """Check that a variable is not one that tfk8s sets."""
    if re.search(RESERVED_ENV, value):
        raise Invalid(
            "reserved-name", f"{quoted(value)} is set by tfk8s", "TF_CONFIG and names with TFK8S_ are reserved"
        )
    return value


def label_key(value: str) -> str:
    """Check that a label or annotation is not one that tfk8s sets."""
    if re.search(RESERVED_LABEL, value):
        prefix = value.partition("/")[0]
        raise Invalid("reserved-name", f"{quoted(value)} is set by tfk8s", f"names with {prefix}/ are reserved")
    return value
