"""Keeps secrets out of the history: values of variables, arguments that name a secret, and the user part of URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "…"
_NAME = r"[\w.-]{0,60}(?:key|token|password|passwd|secret|credentials?|signature)"  # bounded: a search stays linear
# Texts, which `re` compiles when the first is needed: few commands write the history.
_OPTION = rf"(?i)-{_NAME}"  # one dash or two: a name has dashes
_ASSIGNED = rf"(?i)(-?{_NAME}=)"
_IN_TEXT = rf"(?i)(?<![\w.-])((?:-{_NAME}\s+)|(?:{_NAME}=))(?:\"[^\"]*\"|'[^']*'|[^\s&\"',]+)"
_URL_USER = r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)[^/\s@]*(?:@[^/\s@]*)*@"
_SCP_USER = r"^[^/\s@:]+(?::[^/\s@]*)?@(?=[^/\s@]+:)"  # git's `user@host:path`
_SHORTEST = 8  # characters of a value that is looked for in texts: a shorter one stands in many

_Path = tuple[str | int, ...]


def text(value: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without the user part of its URLs, the values of secret options, and other secrets.

    Args:
        value: the text.
        secrets: texts that must not be in the result; short ones are not looked for.
    """
    for secret in sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True):
        value = value.replace(secret, HIDDEN)
    without_users = re.sub(_URL_USER, r"\1", re.sub(_SCP_USER, "", value))
    return re.sub(_IN_TEXT, rf"\1{HIDDEN}", without_users)


def words(command: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """Return a command's words without the value after each option that names a secret; `secrets` as for `text`."""
    kept, secrets, is_hidden = [], list(secrets), False
    for word in command:
        assigned = re.match(_ASSIGNED, word)
        kept.append(HIDDEN if is_hidden else assigned[1] + HIDDEN if assigned else text(word, secrets))
        is_hidden = bool(re.fullmatch(_OPTION, word))
    return kept


def job_file(plain: Any) -> Any:
    """Return a job file's plain data without the values of environment variables, and without secrets in its texts."""
    return _without(plain, (), secrets_of(plain))


def secrets_of(plain: Any) -> set[str]:
    """Return the values of the environment variables in a job file's plain data, but short ones."""
    return {value for value in _values(plain, ()) if len(value) >= _SHORTEST}


def _is_env(part: Any, path: _Path) -> bool:
    """Return whether a part of a job file has variables: its own, those of a job, or those of a container in `pod`."""
    if isinstance(part, list):
        return path[-1:] == ("env",) and "pod" in path
    is_own = path == ("env",) or (len(path) == 3 and path[0] == "jobs" and path[2] == "env")
    return is_own and isinstance(part, Mapping)


def _without(plain: Any, path: _Path, secrets: set[str]) -> Any:
    if _is_env(plain, path):
        return _names(plain)
    if isinstance(plain, Mapping):
        return {key: _without(part, (*path, key), secrets) for key, part in plain.items()}
    if isinstance(plain, list):
        are_words = all(isinstance(part, str) for part in plain)
        return (
            words(plain, secrets) if are_words else [_without(part, (*path, i), secrets) for i, part in _parts(plain)]
        )
    return text(plain, secrets) if isinstance(plain, str) else plain


def _parts(plain: Any) -> Iterable[tuple[Any, Any]]:
    return plain.items() if isinstance(plain, Mapping) else enumerate(plain) if isinstance(plain, list) else ()


def _values(plain: Any, path: _Path) -> Iterator[str]:
    """Yield the values of variables, wherever a job file has them."""
    is_env = _is_env(plain, path)
    for key, part in _parts(plain):
        value = part.get("value") if is_env and isinstance(part, Mapping) else part
        if is_env and isinstance(value, str):
            yield value
        elif not is_env:
            yield from _values(part, (*path, key))


def _names(env: Any) -> Any:
    """Return variables without their values; a source, such as a Secret's name, stays."""
    if isinstance(env, list):
        return [{**item, "value": HIDDEN} if isinstance(item, Mapping) and "value" in item else item for item in env]
    return {name: HIDDEN if isinstance(value, str) else value for name, value in env.items()}
