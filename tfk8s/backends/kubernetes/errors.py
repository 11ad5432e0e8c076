"""The API server's refusals, and its silence, as tfk8s' errors: translated here and nowhere else."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import urllib3.exceptions
import yaml
from kubernetes.config import ConfigException

from tfk8s.errors import BackendUnreachable, ClusterError, InvalidInput, quoted, there_are
from tfk8s.render import rbac

# It has too much to do, is being restarted, or something behind it is: the next try may be answered.
_PASSING = {429, 500, 502, 503, 504}

_TERMINATING = re.compile(r"unable to create new content in namespace (\S+) because it is being terminated")
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NOBODY = "system:anonymous"  # who comes without credentials
_KUEUE = 'admission webhook "vstatefulset.kb.io" denied the request: '


_IS_IT_RUNNING = "is the cluster running? `kubectl config get-contexts` shows others, --local needs none"
_WHICH_PROXY = "HTTPS_PROXY, or the kubeconfig's proxy-url, names it; NO_PROXY names what needs none"
_UNHEARD = urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError


class ApiError(ClusterError):
    """The API server refused a request.

    Attributes:
        code: its HTTP status.
    """

    def __init__(self, code: int, message: str, *, help: str | None = None) -> None:  # noqa: A002 - as its base
        super().__init__(message, help=help)
        self.code = code


class Unserved(ApiError, BackendUnreachable):
    """The API server can't do it now.

    Attributes:
        unheard: nothing of the request was done.
        retry_after: in seconds, as the API server wishes; 0 where it has no wish.
    """

    def __init__(self, code: int, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(code, message, help="try again; `kubectl get --raw /readyz?verbose` shows how it is")
        self.unheard, self.retry_after = code in (403, 409, 429), retry_after


def unsettled(refusal: ApiError) -> Unserved:
    """Return the refusal of an API server that has just started: it may not know yet who may do what."""
    found = Unserved(refusal.code, str(refusal))
    found.help = refusal.help
    return found


class Unanswered(BackendUnreachable):
    """The API server gave no answer, or half of one.

    Attributes:
        unheard: it can't have seen the request.
        retry_after: 0, as for `Unserved`.
    """

    def __init__(self, message: str, *, unheard: bool, help: str = _IS_IT_RUNNING) -> None:  # noqa: A002
        super().__init__(message, help=help)
        self.unheard, self.retry_after = unheard, 0.0


def no_kubeconfig(places: str) -> InvalidInput:
    """Return the error for files of which none exists."""
    return InvalidInput(
        f"no Kubernetes cluster to talk to: there is no kubeconfig ({places})",
        help="`kind create cluster --config kind-config.yaml` makes one; or use --local, which needs none",
    )


def no_context(places: str, name: str, names: Sequence[str]) -> InvalidInput:
    """Return the error for a context that a kubeconfig lacks; `name` is empty where it names no current one."""
    if name:
        has = ", ".join(names) or "none"
        return InvalidInput(f"{places} has no context {quoted(name)}; it has {has}", help="kubectl config get-contexts")
    return InvalidInput(
        f"{places} names no current context; {there_are(names)}",
        help="say which with --context, or `kubectl config use-context NAME`",
    )


@contextlib.contextmanager
def of_kubeconfig(about: str) -> Iterator[None]:
    """Raise an InvalidInput for a kubeconfig that the official client can't use. The error shows no field's content."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"this is not YAML in line {mark.line + 1}: {error.problem}" if mark else "this is not YAML"  # type: ignore[attr-defined]
    except ConfigException as error:
        reason = _without_entry(error)
    except ssl.SSLError as error:
        known = error.reason.lower().replace("_", " ") if error.reason else "no PEM, or a password"
        reason = f"a certificate or a key is wrong: {known}"
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    except (ValueError, TypeError, AttributeError, LookupError):
        reason = "a field is not as it has to be"
    else:
        return
    raise InvalidInput(f"{about} can't be used: {reason}", help="`kubectl config view` shows it without its secrets")


@contextlib.contextmanager
def of_plugin(about: str, plugin: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error for a credential plugin that fails. The error shows nothing of what the plugin prints."""
    command = plugin.get("command")
    try:
        yield
    except FileNotFoundError:
        raise InvalidInput(
            f'{about} can\'t be used: it logs in by the program "{command}", which is not installed, or not in PATH',
            help=_visible(plugin.get("installHint") or "install it; `kubectl get pods` needs it too"),
        ) from None
    except ConfigException as error:
        reason = _without_entry(error)
    except subprocess.CalledProcessError as error:
        reason = f"it ended with exit code {error.returncode}"
    except subprocess.TimeoutExpired as error:
        reason = f"it did not end in {error.timeout:g} s"
    except OSError as error:
        reason = f"it can't be started: {error.strerror}"
    except (ValueError, TypeError, AttributeError, LookupError):
        reason = "its answer is no ExecCredential with a status"
    else:
        return
    said = f'the program "{command}", by which {about} logs in, gave no credentials: {reason}'
    raise Unanswered(said, unheard=True, help="what it says is above; `kubectl get pods` must work first")


def refused(code: int, body: bytes, context: str, retry_after: str | None = None, path: str = "") -> ApiError:
    """Return the error for an answer of 400 or more; `retry_after` is its header, `path` what was asked for."""
    status = _status(body)
    message = status.get("message") or body.decode(errors="replace").strip() or f"HTTP status {code}"
    if code == 401:
        return ApiError(
            code,
            f'the API server of context "{context}" refuses your credentials: they are wrong, or have expired',
            help="log in again, as your cluster's provider has it; `kubectl get pods` must work first",
        )
    if code == 403 and (match := _TERMINATING.search(message)):
        return ApiError(
            code,
            f'namespace "{match[1]}" is being deleted: nothing new can be made in it',
            help=f"take another one, or wait until `kubectl get namespace {match[1]}` finds it no more",
        )
    if code == 403 and (match := _FORBIDDEN.search(message)):
        return _forbidden(match.groupdict())
    if code == 409 and (conflicts := list(_conflicts(status))):
        return ApiError(
            code,
            f"{_about(status, path)} is changed by others too: {'; '.join(conflicts)}",
            help="have them leave these fields alone, or remove the object; tfk8s takes nothing over",
        )
    if code == 404 and status.get("details", {}).get("kind") == "namespaces":
        name = status["details"]["name"]
        return ApiError(code, f'there is no namespace "{name}"', help=f"kubectl create namespace {name}")
    if code in _PASSING or (code == 409 and status.get("reason") == "Conflict"):  # others were quicker, by a moment
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
        return Unserved(code, f'the API server of context "{context}" can\'t do it now: {message}', retry_after=seconds)
    if _KUEUE in message:
        return ApiError(
            code,
            f"Kueue refuses the change: {message.partition(_KUEUE)[2]}",
            help="a cluster in a queue keeps its tasks, what they ask for and its queue: down, and up again",
        )
    return ApiError(code, f"the API server refuses: {message}")


def unreachable(error: Exception, context: str, host: str) -> Unanswered:
    """Return the error for a request that got no answer."""
    distrust = _distrust(error)
    if "expired" in distrust or "not yet valid" in distrust:
        said = f'the certificate of the API server of context "{context}" ({host}) can\'t be trusted: {distrust}'
        return Unanswered(said, unheard=True, help="is the clock of this machine right? else have it renewed")
    if distrust:
        said = f'the API server of context "{context}" ({host}) is not the one that the kubeconfig trusts: {distrust}'
        return Unanswered(said, unheard=True, help="was the cluster made anew? get its kubeconfig again")
    said = f'the API server of context "{context}" ({host}) does not answer: {_reason(error)}'
    if isinstance(error, urllib3.exceptions.ProxyError):
        return Unanswered(said, unheard=True, help=_WHICH_PROXY)
    return Unanswered(said, unheard=isinstance(error, _UNHEARD))


def _distrust(error: Exception) -> str:
    """Return what is wrong with the server's certificate, or "" where it is another error."""
    cause = error.args[0] if isinstance(error, urllib3.exceptions.SSLError) else error
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else ""


def _reason(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "no such host"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return str(error).rpartition("] ")[2]
    if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError):
        return "no answer in time"
    if isinstance(error, ValueError | urllib3.exceptions.ProtocolError):
        return "its answer broke off"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"the proxy before it lets nobody through: {_reason(error.original_error)}"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _forbidden(what: dict[str, str]) -> ApiError:
    resource = f"{what['resource']}.{what['group']}" if what["group"] else what["resource"]
    where = f'in namespace "{what["namespace"]}"' if what["namespace"] else "in all namespaces"
    return ApiError(403, f'"{what["user"]}" may not {what["verb"]} {resource} {where}', help=_allowing(what, resource))


def _allowing(what: dict[str, str], resource: str) -> str:
    """Return what would allow it: one of tfk8s' Roles, where it is in a namespace."""
    if what["user"] == _NOBODY:  # a right for it would be everybody's
        return "the kubeconfig has no credentials for this context: log in, as your cluster's provider has it"
    right = rbac.find(what["verb"], what["resource"], what["group"])
    if not what["namespace"] or right is None:
        command = f"kubectl create clusterrole tfk8s --verb={what['verb']} --resource={resource}"
        return f"a ClusterRole with this would allow it: {command}, bound to that user"
    flag, user = f"-n {what['namespace']}", shlex.quote(what["user"])
    return (
        f"the Role {' or '.join(right.roles)} allows it: tfk8s roles | kubectl apply {flag} -f - makes both, "
        f"kubectl create rolebinding {user} {flag} --role={right.roles[0]} --user={user} gives one"
    )


def _conflicts(status: dict[str, Any]) -> Any:
    for cause in status.get("details", {}).get("causes", ()):
        if cause.get("reason") == "FieldManagerConflict":
            owner = re.search(r'"([^"]*)"', cause.get("message", ""))
            yield f"{cause.get('field', '').lstrip('.')} belongs to {owner[1] if owner else 'another'}"


def _about(status: dict[str, Any], path: str) -> str:
    """Return which object an answer is about, by what it says or what was asked."""
    _, kind, name = f"//{path}".rsplit("/", 2)
    details = status.get("details", {})
    return f'{details.get("kind") or kind} "{details.get("name") or name}"'


def _without_entry(error: ConfigException) -> str:
    """Return what the official client says, up to the entry that it shows after the file's path: it has secrets."""
    return str(error).removeprefix("Invalid kube-config file. ").partition("/{")[0]


def _visible(text: str) -> str:
    """Return a text in one line, without what could change a terminal."""
    return "".join(char if char.isprintable() else "�" for char in " ".join(text.split()))


def _status(body: bytes) -> dict[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}
