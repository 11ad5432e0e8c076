"""What says who asks, at each request: some of it changes while a command runs."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tfk8s.backends.kubernetes.access import KeyPair, User
from tfk8s.errors import InvalidInput

READ_AGAIN_SECONDS = 50.0  # a token in a file, as client-go: of a minute, ten seconds before its end


@dataclass(frozen=True, slots=True)
class Credential:
    """What holds now.

    Attributes:
        authorization: the header of that name; "" is none.
        key_pair: for TLS.
    """

    authorization: str = field(default="", repr=False)
    key_pair: KeyPair | None = None


class Credentials(Protocol):
    """Knows what holds now; any number of threads may ask."""

    def get(self) -> Credential:
        """Return it.

        Raises:
            InvalidInput: the kubeconfig is wrong about it.
            BackendUnreachable: it can't be had now.
        """

    def renew(self, refused: Credential, /) -> bool:
        """Get another one than the API server has refused; return whether there is one now."""


class Fixed:
    """A credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def get(self) -> Credential:
        """Return it."""
        return self._credential

    def renew(self, _: Credential, /) -> bool:
        """Return False: there is no other."""
        return False


class TokenFile:
    """A token in a file that somebody else renews, such as kubelet.

    Args:
        user: has the file, perhaps a token for when it can't be read, and a key pair.
        clock: for tests.
    """

    def __init__(self, user: User, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._user, self._path, self._clock = user, path, clock
        self._lock = threading.Lock()
        self._last = Credential(bearer(user.token, user.about), user.key_pair) if user.token else None
        self._until = -1.0

    def get(self) -> Credential:
        """Return the token that is in the file, or was a minute ago, or last where it can't be read."""
        with self._lock:
            if self._last is None or self._clock() >= self._until:
                self._last = self._read()
            return self._last

    def renew(self, refused: Credential, /) -> bool:
        """Read the file again."""
        with self._lock:
            self._last = self._read()
            return self._last != refused

    def _read(self) -> Credential:
        self._until = self._clock() + READ_AGAIN_SECONDS
        try:
            token = self._path.read_text().strip()
            if not token:
                raise ValueError("it is empty")
            return Credential(bearer(token, f"{self._path}, of {self._user.about},"), self._user.key_pair)
        except (OSError, ValueError) as error:
            if self._last is not None:
                return self._last
            reason = error.strerror if isinstance(error, OSError) else "it has no token in it"
            raise InvalidInput(f"the token file {self._path} of {self._user.about} can't be used: {reason}") from None


def fixed(user: User) -> Fixed | None:
    """Return the credential of a user who has one that stays; None where there is none."""
    authorization = ""
    if user.token:
        authorization = bearer(user.token, user.about)
    elif user.login:
        authorization = "Basic " + base64.b64encode(":".join(user.login).encode()).decode()
    elif user.id_token:
        authorization = _id_bearer(user)
    return Fixed(Credential(authorization, user.key_pair)) if authorization or user.key_pair else None


def bearer(token: str, about: str) -> str:
    """Return the header for a token.

    Raises:
        InvalidInput: it can't be one: it would end the header, or not get through.
    """
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidInput(f"the token of {about} can't be used: it has spaces, line ends or other alphabets in it")
    return f"Bearer {token}"


def _id_bearer(user: User) -> str:
    """Return the header for the token of an OpenID provider, which tells when it ends (RFC 7519, exp)."""
    try:
        claims = user.id_token.split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp")
    except (IndexError, ValueError, AttributeError):
        ends = None  # the API server says what it thinks of it
    if isinstance(ends, int | float) and ends <= time.time():
        raise InvalidInput(
            f"the id-token of {user.about} has expired",
            help="any kubectl command renews it, such as `kubectl get pods`; a kubeconfig with exec needs none",
        )
    return bearer(user.id_token, user.about)
