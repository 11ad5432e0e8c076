"""Credentials that a program prints: gke-gcloud-auth-plugin, `aws eks get-token`, kubelogin and others.

What they are asked, and answer, is client.authentication.k8s.io/v1; when, is as in client-go
(plugin/pkg/client/auth/exec/exec.go), but that a program which never ends is ended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tfk8s import polling
from tfk8s.backends.kubernetes import errors
from tfk8s.backends.kubernetes.access import KeyPair, Plugin, User
from tfk8s.backends.kubernetes.access.credentials import Credential, bearer
from tfk8s.errors import InvalidInput, quoted

LIMIT_SECONDS = 180.0  # some have a person log in, in a browser
_MOST_BYTES = 1 << 20  # an answer has a few thousand
EARLY_SECONDS = 5.0  # before its end a credential is no longer used

Run = Callable[[Sequence[str], Mapping[str, str], bool], tuple[int, bytes]]


class FromPlugin:
    """What a plugin printed last; it is asked again when that ends. Threads wait while it is asked for one.

    Args:
        user: who has it.
        plugin: it.
        tell: hears what is waited for, where that takes long.
        run: starts a program with an environment and perhaps this process' standard input; for tests.
        clock: for tests.
    """

    def __init__(
        self,
        user: User,
        plugin: Plugin,
        tell: Callable[[str], None],
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._user, self._plugin, self._tell = user, plugin, tell
        self._run, self._clock = run or self._start, clock
        self._lock = threading.Lock()
        self._last: Credential | None = None
        self._until: float | None = None  # None is for ever

    def get(self) -> Credential:
        """Return a credential that holds; raises what `Credentials.get` does."""
        with self._lock:
            if self._last is None or (self._until is not None and self._clock() >= self._until - EARLY_SECONDS):
                self._last = self._ask()
            return self._last

    def renew(self, refused: Credential, /) -> bool:
        """Ask the plugin again, unless another thread just has."""
        with self._lock:
            if self._last is None or self._last == refused:
                self._last = self._ask()
            return self._last != refused

    def _ask(self) -> Credential:
        command = shutil.which(self._plugin.command)
        if command is None:
            raise InvalidInput(
                f'{self._user.about} can\'t be used: it logs in by the program "{self._plugin.command}", '
                "which is not installed, or not in PATH",
                help=" ".join(map(_visible, self._plugin.hint.split()))
                or "install it; `kubectl get pods` needs it too",
            )
        with_input = self._plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if self._plugin.interactive == "Always" and not with_input:
            raise self._failed("it asks its user something, and standard input is no terminal")
        spec: dict[str, object] = {"interactive": with_input}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = json.dumps({"kind": "ExecCredential", "apiVersion": self._plugin.version, "spec": spec})
        environment = {**os.environ, **self._plugin.environment, "KUBERNETES_EXEC_INFO": info}
        code, answer = self._run((command, *self._plugin.arguments), environment, with_input)
        if code:
            raise self._failed(f"it ended with exit code {code}")
        return self._understand(answer)

    def _understand(self, answer: bytes) -> Credential:
        """Return what an answer has in it; nothing of it is shown in an error."""
        try:
            found = json.loads(answer)
            status, version = found["status"], found.get("apiVersion")
            token, certificate, key, ends = (
                status.get(name) or ""
                for name in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
            )
            until = _moment(ends) if ends else None
            whole = all(isinstance(value, str) for value in (token, certificate, key))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._failed("its answer is no ExecCredential with a status") from None
        if version != self._plugin.version:
            raise self._failed(f"it is asked as {self._plugin.version}, and answers as {quoted(str(version))}")
        if not whole or not (token or certificate or key) or bool(certificate) != bool(key):
            raise self._failed("its answer has neither a token nor a certificate with its key")
        self._until = until
        pair = KeyPair(certificate.encode(), key.encode()) if certificate else None
        return Credential(bearer(token, self._user.about) if token else "", pair)

    def _failed(self, why: str) -> errors.Unanswered:
        name = self._plugin.command.rpartition("/")[2]
        said = f'the program "{name}", by which {self._user.about} logs in, gave no credentials: {why}'
        return errors.Unanswered(said, unheard=True, help="what it says is above; `kubectl get pods` must work first")

    def _start(self, command: Sequence[str], environment: Mapping[str, str], with_input: bool) -> tuple[int, bytes]:
        """Run a program to its end; what it says on standard error is for the user."""
        stdin = None if with_input else subprocess.DEVNULL
        try:
            process = subprocess.Popen(command, env=environment, stdin=stdin, stdout=subprocess.PIPE)
        except (OSError, ValueError) as error:  # the latter for NUL in an argument, or "=" in a variable's name
            raise self._failed(f"it can't be started: {getattr(error, 'strerror', error)}") from error
        with process:
            try:
                return self._await(process)
            except BaseException:  # Ctrl-C too
                process.kill()
                raise

    def _await(self, process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
        assert process.stdout is not None
        answer = b""
        began, told = time.monotonic(), False
        while True:
            left = (LIMIT_SECONDS if told else polling.TELL_SECONDS) - (time.monotonic() - began)
            if polling.readable(process.stdout.fileno(), max(0.0, left)):
                block = os.read(process.stdout.fileno(), _MOST_BYTES)
                answer += block
                if not block:
                    break
            elif told:
                raise self._failed(f"it did not end in {LIMIT_SECONDS:g} s")
            else:
                self._tell(f'waiting for the program "{self._plugin.command}" to log you in')
                told = True
            if len(answer) > _MOST_BYTES:
                raise self._failed(f"it printed more than {_MOST_BYTES} bytes")
        try:
            return process.wait(max(0.0, LIMIT_SECONDS - (time.monotonic() - began))), answer
        except subprocess.TimeoutExpired:
            raise self._failed(f"it did not end in {LIMIT_SECONDS:g} s") from None


def _moment(text: Any) -> float:
    """Return a time as RFC 3339 writes it, in seconds since 1970."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _visible(word: str) -> str:
    """Return a word without what could change a terminal."""
    return "".join(one if one.isprintable() else "�" for one in word)
