"""What says who asks, while it changes: tokens in files, programs that print credentials."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tfk8s.backends.kubernetes.access import KeyPair, Plugin, User, credentials, plugin
from tfk8s.backends.kubernetes.access.credentials import Credential, Fixed, TokenFile
from tfk8s.backends.kubernetes.access.plugin import FromPlugin
from tfk8s.backends.kubernetes.errors import Unanswered
from tfk8s.errors import InvalidInput

V1 = "client.authentication.k8s.io/v1"
PAIR = KeyPair(b"c", b"k")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def user(**fields: Any) -> User:
    return User(about='user "u" of F', **fields)


def authorization(asks: User) -> str:
    found = credentials.fixed(asks)
    assert found is not None
    return found.get().authorization


# ---- what stays ----------------------------------------------------------------------------------------------------


def test_credentials_that_stay() -> None:
    assert authorization(user(token="t")) == "Bearer t"
    assert authorization(user(login=("me", "p:é"))) == "Basic " + base64.b64encode("me:p:é".encode()).decode()
    assert credentials.fixed(user()) is None
    found = credentials.fixed(user(key_pair=PAIR))
    assert found is not None
    assert found.get() == Credential("", PAIR)
    assert not found.renew(found.get())


@pytest.mark.parametrize("token", ["SECRET\nx: y", "SECRET token", "SECRETé"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        credentials.fixed(user(token=token))
    assert str(caught.value) == (
        'the token of user "u" of F can\'t be used: it has spaces, line ends or other alphabets in it'
    )


def id_token(claims: object) -> str:
    return f"a.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c"


@pytest.mark.parametrize("token", [id_token({"exp": 99999999999}), id_token({}), id_token([]), "abc", "a.!.c"])
def test_an_id_token_that_may_hold(token: str) -> None:
    assert authorization(user(id_token=token)) == f"Bearer {token}"


def test_an_id_token_that_has_expired() -> None:
    with pytest.raises(InvalidInput) as caught:
        credentials.fixed(user(id_token=id_token({"exp": 1})))
    assert str(caught.value) == 'the id-token of user "u" of F has expired'
    assert "kubectl get pods" in str(caught.value.help)


# ---- tokens in files -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    return tmp_path / "token"


def test_a_token_file_is_read_again_when_a_minute_has_passed(file: Path) -> None:
    clock = Clock()
    found = TokenFile(user(key_pair=PAIR), file, clock)
    assert found.get() == Credential("Bearer first", PAIR)
    file.write_text("second")
    clock.now += 49
    assert found.get().authorization == "Bearer first"
    clock.now += 1
    assert found.get().authorization == "Bearer second"


def test_a_token_file_is_read_again_when_its_token_is_refused(file: Path) -> None:
    found = TokenFile(user(), file, Clock())
    old = found.get()
    assert not found.renew(old)
    file.write_text("second")
    assert found.renew(old)
    assert found.get().authorization == "Bearer second"


@pytest.mark.parametrize("spoilt", ["gone", "empty"])
def test_a_token_file_that_can_t_be_read_leaves_the_token(file: Path, spoilt: str) -> None:
    clock = Clock()
    found = TokenFile(user(), file, clock)
    found.get()
    file.unlink() if spoilt == "gone" else file.write_text(" ")
    clock.now += 60
    assert found.get().authorization == "Bearer first"
    with pytest.raises(InvalidInput, match=r"^the token file .* of user .* can't be used: "):
        TokenFile(user(), file).get()
    assert TokenFile(user(token="other"), file).get().authorization == "Bearer other"


# ---- programs ------------------------------------------------------------------------------------------------------


class Program:
    """What a plugin would start: answers with the next of `answers`."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.started: list[tuple[Sequence[str], Mapping[str, str], bool]] = []

    def __call__(self, command: Sequence[str], environment: Mapping[str, str], with_input: bool) -> tuple[int, bytes]:
        self.started.append((command, environment, with_input))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return answer, b""
        return 0, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def answer(version: str = V1, **status: object) -> dict[str, object]:
    return {"kind": "ExecCredential", "apiVersion": version, "status": status}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin.shutil, "which", lambda name: f"/bin/{name}" if name != "gone" else None)


def make(program: Program, clock: Clock | None = None, **fields: Any) -> FromPlugin:
    made = Plugin(**{"command": "login", "version": V1, "interactive": "Never", **fields})
    return FromPlugin(user(), made, lambda _: None, program, clock or Clock())


def test_a_plugin_is_asked_as_its_kubeconfig_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "1")
    monkeypatch.setenv("MORE", "1")
    program = Program(answer(token="t"))
    asked = make(program, arguments=("a", "b"), environment={"MORE": "2"}, cluster={"server": "https://h"})
    assert asked.get() == Credential("Bearer t")
    ((command, environment, with_input),) = program.started
    assert (command, with_input) == (("/bin/login", "a", "b"), False)
    assert (environment["HERE"], environment["MORE"]) == ("1", "2")
    assert json.loads(environment["KUBERNETES_EXEC_INFO"]) == {
        "kind": "ExecCredential", "apiVersion": V1,
        "spec": {"interactive": False, "cluster": {"server": "https://h"}},
    }  # fmt: skip


def test_a_plugin_is_asked_once_where_its_answer_has_no_end() -> None:
    asked = make(Program(answer(clientCertificateData="c", clientKeyData="k")))
    assert asked.get() == asked.get() == Credential("", PAIR)


@pytest.mark.parametrize("ends", ["1970-01-01T00:20:00Z", "1970-01-01T01:20:00.123456789+01:00", "1970-01-01T00:20:00"])
def test_a_plugin_is_asked_again_before_its_answer_ends(ends: str) -> None:
    clock = Clock()
    asked = make(Program(answer(token="a", expirationTimestamp=ends), answer(token="b")), clock)
    assert asked.get() == Credential("Bearer a")
    clock.now = 1194.0
    assert asked.get() == Credential("Bearer a")
    clock.now = 1196.0
    assert asked.get() == Credential("Bearer b")
    clock.now = 99999.0
    assert asked.get() == Credential("Bearer b")


def test_a_plugin_is_asked_again_when_its_answer_is_refused() -> None:
    program = Program(answer(token="a"), answer(token="b"), answer(token="b"))
    asked = make(program)
    first = asked.get()
    assert asked.renew(first)
    assert asked.renew(first), "another thread has renewed it"
    assert len(program.started) == 2
    assert not asked.renew(asked.get()), "it has no other"


def test_threads_that_ask_at_once_start_a_plugin_once() -> None:
    started, go_on = threading.Event(), threading.Event()

    class Slow(Program):
        def __call__(self, *arguments: Any) -> tuple[int, bytes]:
            started.set()
            assert go_on.wait(30)
            return super().__call__(*arguments)

    asked = make(Slow(answer(token="t")))
    found: list[Credential] = []
    threads = [threading.Thread(target=lambda: found.append(asked.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert started.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert found == [Credential("Bearer t")] * 8


FAILURES = {
    "it ended with exit code 3": 3,
    "its answer is no ExecCredential with a status": b"SECRET",
    "its answer is no ExecCredential with a status ": {"apiVersion": V1},
    "its answer is no ExecCredential with a status  ": ["SECRET"],
    "its answer is no ExecCredential with a status   ": answer(token="SECRET", expirationTimestamp="soon"),
    f'it is asked as {V1}, and answers as "v1beta1"': answer("v1beta1", token="SECRET"),
    "its answer has neither a token nor a certificate with its key": answer(),
    "its answer has neither a token nor a certificate with its key ": answer(token=["SECRET"]),
    "its answer has neither a token nor a certificate with its key  ": answer(token="SECRET", clientKeyData="k"),
}


@pytest.mark.parametrize("why", FAILURES)
def test_a_plugin_that_gives_no_credentials(why: str) -> None:
    with pytest.raises(Unanswered) as caught:
        make(Program(FAILURES[why])).get()
    assert str(caught.value) == (
        f'the program "login", by which user "u" of F logs in, gave no credentials: {why.rstrip()}'
    )


def test_a_plugin_that_is_not_installed() -> None:
    with pytest.raises(InvalidInput) as caught:
        make(Program(), command="gone", hint="Install\n it \x1b[31m from there").get()
    assert str(caught.value) == (
        'user "u" of F can\'t be used: it logs in by the program "gone", which is not installed, or not in PATH'
    )
    assert caught.value.help == "Install it �[31m from there"


@pytest.mark.parametrize(
    ("mode", "terminal", "given"), [("IfAvailable", True, True), ("IfAvailable", False, False), ("Never", True, False)]
)
def test_who_gets_standard_input(monkeypatch: pytest.MonkeyPatch, mode: str, terminal: bool, given: bool) -> None:
    monkeypatch.setattr("sys.stdin", type("Input", (), {"isatty": lambda _: terminal})())
    program = Program(answer(token="t"))
    make(program, interactive=mode).get()
    ((_, environment, with_input),) = program.started
    assert with_input is given
    assert json.loads(environment["KUBERNETES_EXEC_INFO"])["spec"] == {"interactive": given}


def test_a_plugin_that_has_to_ask_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(Unanswered, match="standard input is no terminal"):
        make(Program(), interactive="Always").get()


# ---- programs that really are started ------------------------------------------------------------------------------


def script(tmp_path: Path, text: str) -> FromPlugin:
    path = tmp_path / "login"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    made = Plugin(command=str(path), version=V1, interactive="Never", arguments=("one",), environment={"NAME": "me"})
    return FromPlugin(user(), made, lambda text: (tmp_path / "told").write_text(text))


@pytest.fixture
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin.shutil, "which", lambda name: name)


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
def test_a_program_is_heard(tmp_path: Path) -> None:
    text = f"""read line; printf '{{"apiVersion": "{V1}", "status": {{"token": "%s-%s%s"}}}}' "$1" "$NAME" "$line" """
    assert script(tmp_path, text).get() == Credential("Bearer one-me")


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
def test_a_program_that_never_ends_is_told_of_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin.polling, "TELL_SECONDS", 0.01)
    monkeypatch.setattr(plugin, "LIMIT_SECONDS", 0.02)
    with pytest.raises(Unanswered, match=r"it did not end in 0\.02 s"):
        script(tmp_path, "exec sleep 1000").get()
    assert (tmp_path / "told").read_text() == f'waiting for the program "{tmp_path}/login" to log you in'


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
def test_a_program_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match="it printed more than 1048576 bytes"):
        script(tmp_path, "exec yes").get()


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
def test_a_program_that_says_all_and_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "LIMIT_SECONDS", 0.02)
    with pytest.raises(Unanswered, match=r"it did not end in 0\.02 s"):
        script(tmp_path, "exec sleep 1000 >&-").get()


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
@pytest.mark.parametrize("fields", [{"arguments": ("SECRET\0",)}, {"environment": {"A=B": "SECRET"}}])
def test_what_no_program_can_be_started_with(fields: dict[str, Any]) -> None:
    made = Plugin(**{"command": "true", "version": V1, "interactive": "Never", **fields})
    with pytest.raises(Unanswered, match=r"it can't be started: [a-z ]+$"):
        FromPlugin(user(), made, lambda _: None).get()


@pytest.mark.programs
@pytest.mark.usefixtures("_found")
def test_a_program_that_can_t_be_started(tmp_path: Path) -> None:
    asked = script(tmp_path, "")
    os.chmod(tmp_path / "login", 0o600)
    with pytest.raises(Unanswered, match="it can't be started: Permission denied"):
        asked.get()


def test_a_fixed_credential_is_what_it_is() -> None:
    assert Fixed(Credential("x")).get() == Credential("x")
