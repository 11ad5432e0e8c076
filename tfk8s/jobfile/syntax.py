"""The syntax of names in a job file: patterns, and messages for texts that don't match.

Every implementation of JSON Schema (Rust, ECMAScript, Go, Python) must read the patterns: they have no look-around and
no flags.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tfk8s.core import naming, quantity

_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PYTHON_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_PATH_COMPONENT = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = r"([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:]+\])"

JOB_NAME = f"^{naming.JOB_NAME.pattern}$"
CLUSTER_NAME = f"^{naming.DNS_LABEL.pattern}$"
DNS_LABEL = f"^{_LABEL}$"
DNS_NAME = f"^{_SUBDOMAIN}$"
LABEL_KEY = f"^({_SUBDOMAIN}/)?{_NAME}$"
LABEL_VALUE = f"^({_NAME})?$"
GPU_RESOURCE = f"^{_SUBDOMAIN}/{_NAME}$"
ACCELERATOR = f"^{_NAME}$"
ENV_NAME = f"^{_PYTHON_NAME}$"
DATA_KEY = "^[A-Za-z0-9_.-]+$"
TOPOLOGY_KEY = f"^(host|zone|{_SUBDOMAIN}/{_NAME})$"
MODULE = rf"^{_PYTHON_NAME}(\.{_PYTHON_NAME})*$"
ADDRESS = f"^{_HOST}:{_PORT}$"
# The pattern of github.com/distribution/reference.
IMAGE = (
    rf"^({_DOMAIN}(:[0-9]+)?/)?{_PATH_COMPONENT}(/{_PATH_COMPONENT})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?$"
)
MOUNT_PATH = r"^/[^:\x00-\x1f\x7f]*$"
FOLDER = r"^[^\x00-\x1f\x7f]+$"
_PREFIX_PART = "[A-Za-z0-9_=+-][A-Za-z0-9_=+.-]*"
BUCKET = f"^gs://[a-z0-9][a-z0-9_.-]*[a-z0-9](/{_PREFIX_PART})*/?$"
HISTORY_BUCKET = BUCKET.replace("gs", "(s3|gs)", 1)
_HOST_LABEL = "[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
ENDPOINT = rf"^https?://({_HOST_LABEL}(\.{_HOST_LABEL})*|\[[0-9A-Fa-f:.]+\])(:{_PORT})?/?$"
CIDR = "^[0-9A-Fa-f:.]+/(0|[1-9][0-9]{0,2})$"
DURATION = "^([1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,4}h|[1-9][0-9]{0,3}d)$"  # under 2^31 seconds
QUANTITY = f"^{quantity.SYNTAX.pattern}$"


def _job_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lstrip("0123456789_")


def _dns_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _cluster_name(text: str) -> str:
    return _dns_name(text).lstrip("0123456789-")


def _env_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).lstrip("0123456789")


def _bucket(text: str) -> str:
    return "gs://" + re.sub(r"^[a-z0-9]*://|^/+", "", text)


def _address(text: str) -> str:
    return f"{text}:2222"


class Rule(NamedTuple):
    """The problem of a text that does not match a pattern.

    Attributes:
        code: the problem's code.
        noun: the meaning of a text that matches.
        expected: a description of the texts that match.
        suggest: returns a similar text that may match, or "".
    """

    code: str
    noun: str
    expected: str
    suggest: Callable[[str], str] = lambda _: ""


_DNS = 'lower-case letters, digits and "-", starting and ending with a letter or digit'
_LABELS = 'letters, digits, "-", "_" and ".", starting and ending with a letter or digit, at most 63'

RULES = {
    JOB_NAME: Rule(
        "bad-job-name",
        "a TensorFlow job name",
        'letters, digits and "_" only, starting with a letter',
        _job_name,
    ),
    CLUSTER_NAME: Rule(
        "bad-cluster-name",
        "a cluster name",
        'lower-case letters, digits and "-", starting with a letter',
        _cluster_name,
    ),
    DNS_LABEL: Rule("bad-name", "a Kubernetes name", _DNS, _dns_name),
    DNS_NAME: Rule("bad-name", "a Kubernetes name", _DNS, _dns_name),
    LABEL_KEY: Rule("bad-label", "the name of a label or annotation", f"{_LABELS}; optionally after a domain and /"),
    LABEL_VALUE: Rule("bad-label", "the value of a label", _LABELS),
    GPU_RESOURCE: Rule("bad-name", "the name of a resource", "a domain, / and a name, such as nvidia.com/gpu"),
    ACCELERATOR: Rule("bad-name", "the name of an accelerator", "the value of a node label, such as nvidia-l4"),
    ENV_NAME: Rule(
        "bad-env-name",
        "the name of an environment variable",
        'letters, digits and "_", not starting with a digit',
        _env_name,
    ),
    DATA_KEY: Rule("bad-name", "a key of a Secret or ConfigMap", 'letters, digits, "-", "_" and "." only'),
    TOPOLOGY_KEY: Rule("bad-name", "a place of tasks", "host, zone, or a label of nodes, such as example.com/rack"),
    MODULE: Rule("bad-module", "the name of a Python module", "names joined by dots, such as tensorflow_text"),
    ADDRESS: Rule("bad-address", "an address", "HOST:PORT, with a port from 1 to 65535", _address),
    IMAGE: Rule("bad-image", "the name of an image", "REGISTRY/NAME:TAG or NAME@DIGEST, with the name in lower case"),
    MOUNT_PATH: Rule("bad-path", "a path in a container", 'absolute, without ":"'),
    FOLDER: Rule("bad-path", "a folder", "a path without control characters"),
    BUCKET: Rule("bad-bucket", "a bucket of Cloud Storage", "gs://NAME or gs://NAME/FOLDER", _bucket),
    HISTORY_BUCKET: Rule("bad-bucket", "a bucket", "s3://NAME/FOLDER or gs://NAME/FOLDER"),
    ENDPOINT: Rule("bad-endpoint", "the URL of a server", "such as https://minio.example:9000, without a path"),
    CIDR: Rule("bad-cidr", "a range of addresses", "such as 10.0.0.0/8"),
    DURATION: Rule("bad-duration", "a duration", "seconds, or a number with s, m, h or d, such as 10m"),
}


def code_point(character: str) -> str:
    """Return the Unicode name of a character: `U+200B ZERO WIDTH SPACE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def strange_characters(text: str) -> str:
    """Return the Unicode names of invisible and non-ASCII characters in a text; "" if there are none."""
    return ", ".join(code_point(c) for c in dict.fromkeys(text) if not " " <= c <= "~")


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the word that is most similar to `word`, or None if no word is similar."""
    import difflib  # few job files need it

    return next(iter(difflib.get_close_matches(word, words, 1, cutoff)), None)


def suggestion(pattern: str, text: str, limit: int) -> str | None:
    """Return a text that is similar to `text` and matches the pattern, or None."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) not in ("Cf", "Mn"))
    if not plain.isascii():
        return None
    name = RULES[pattern].suggest(plain)[:limit]
    return name if re.search(pattern, name) else None
