"""Keeps secrets out of the record: values of variables, arguments that name a secret, and the user part of URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "…"
_NAME = r"[\w.-]*(?:key|token|password|passwd|secret|credentials?|signature)"
# Texts, which `re` compiles when the first is needed: few commands write the record.
_OPTION = rf"(?i)-{_NAME}"  # one dash or two: a name has dashes
_IN_TEXT = rf"(?i)(?<![\w.-])((?:-{_NAME}\s+)|(?:{_NAME}=))(?:\"[^\"]*\"|'[^']*'|[^\s&\"',]+)"
_URL_USER = r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@]*(?:@[^/\s@]*)*@"
_SCP_USER = r"^[^/\s@:]+(?::[^/\s@]*)?@(?=[^/\s@]+:)"  # git's `user@host:path`
_SHORTEST = 8  # characters of a variable's value that is looked for in texts


def text(value: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without the user part of its URLs, the values of secret options, and other secrets.

    Args:
        value: the text.
        secrets: texts that must not be in the result.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        value = value.replace(secret, HIDDEN)
    without_users = re.sub(_URL_USER, r"\1", re.sub(_SCP_USER, "", value))
    return re.sub(_IN_TEXT, rf"\1{HIDDEN}", without_users)


def words(command: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """Return a command's words without the value after each option that names a secret; `secrets` as for `text`."""
    kept, secrets, is_hidden = [], list(secrets), False
    for word in command:
        kept.append(HIDDEN if is_hidden else text(word, secrets))
        is_hidden = bool(re.fullmatch(_OPTION, word))
    return kept


def job_file(plain: Any) -> Any:
    """Return a job file's plain data without the values of environment variables, and without secrets in its texts."""
    return _without(plain, secrets_of(plain))


def secrets_of(plain: Any) -> set[str]:
    """Return the values of the environment variables in a job file's plain data, but short ones."""
    found: set[str] = set()
    for key, part in _parts(plain):
        found |= {value for value in _values(part) if len(value) >= _SHORTEST} if key == "env" else secrets_of(part)
    return found


def _without(plain: Any, secrets: set[str]) -> Any:
    if isinstance(plain, Mapping):
        return {key: _names(part) if key == "env" else _without(part, secrets) for key, part in plain.items()}
    if isinstance(plain, list):
        are_words = all(isinstance(part, str) for part in plain)
        return words(plain, secrets) if are_words else [_without(part, secrets) for part in plain]
    return text(plain, secrets) if isinstance(plain, str) else plain


def _parts(plain: Any) -> Iterable[tuple[Any, Any]]:
    return plain.items() if isinstance(plain, Mapping) else enumerate(plain) if isinstance(plain, list) else ()


def _values(env: Any) -> Iterable[str]:
    """Yield the values of variables: of a job file's map, or of the list of a container below `pod`."""
    for _, item in _parts(env):
        value = item.get("value") if isinstance(item, Mapping) else item
        if isinstance(value, str):
            yield value


def _names(env: Any) -> Any:
    """Return variables without their values; a source, such as a Secret's name, stays."""
    if isinstance(env, list):
        return [{**item, "value": HIDDEN} if isinstance(item, Mapping) and "value" in item else item for item in env]
    return {name: HIDDEN if isinstance(value, str) else value for name, value in env.items()}
