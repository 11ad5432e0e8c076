"""The errors of API servers, as exceptions of tfk8s."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import urllib3.exceptions

from tfk8s.backends.kubernetes.api_server import field_errors
from tfk8s.backends.kubernetes.api_server.field_errors import InvalidFields
from tfk8s.errors import BackendUnreachable, ClusterError
from tfk8s.render import rbac

# The API server is overloaded or restarts, or a service behind it does: a retry may succeed.
_TEMPORARY = {429, 500, 502, 503, 504}

_TERMINATING = re.compile(r"unable to create new content in namespace (\S+) because it is being terminated")
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
# Kubernetes lets no user create a Role with rights that the user lacks.
_REFUSED_GRANT = re.compile(r'user "(?P<user>[^"]*)" .*is attempting to grant RBAC permissions not currently held')
_RULE = re.compile(r'APIGroups:\["([^"]*)"\], Resources:\["([^"]*)"\].* Verbs:\[([^]]*)\]')
_ANONYMOUS = "system:anonymous"  # the user of requests without credentials
_KUEUE = 'admission webhook "vstatefulset.kb.io" denied the request: '

_CLUSTER_HELP = "is the cluster running? `kubectl config get-contexts` shows others, --local needs none"
_PROXY_HELP = "HTTPS_PROXY or the kubeconfig's proxy-url sets the proxy; NO_PROXY lists the hosts that need none"
_NOT_CONNECTED = urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError


class ApiError(ClusterError):
    """The API server refused a request.

    Attributes:
        code: the HTTP status.
        invalid: the invalid fields of the refused object, or None.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        help: str | None = None,  # noqa: A002 - as its base
        invalid: InvalidFields | None = None,
    ) -> None:
        super().__init__(message, help=help)
        self.code, self.invalid = code, invalid

    @property
    def is_stale(self) -> bool:
        """Return whether somebody else has changed the object since the version in the request."""
        return self.code == HTTPStatus.CONFLICT and isinstance(self, TemporaryApiError)


class NamespaceTerminating(ApiError):
    """The namespace is being deleted, so that nothing can be created in it."""

    def __init__(self, namespace: str) -> None:
        super().__init__(
            403,
            f'namespace "{namespace}" is being deleted: nothing can be created in it',
            help=f"use another namespace, or wait until `kubectl get namespace {namespace}` no longer finds it",
        )


class TemporaryApiError(ApiError, BackendUnreachable):
    """The API server refused a request that it may serve later.

    Attributes:
        had_no_effect: whether the request had no effect, so that even a POST may be retried.
        retry_after: the API server's wish for the next retry, in seconds; 0 if it has none.
    """

    def __init__(self, code: int, message: str, *, retry_after: float = 0.0, help: str | None = None) -> None:  # noqa: A002
        super().__init__(code, message, help=help or "try again; `kubectl get --raw /readyz?verbose` shows its state")
        self.had_no_effect, self.retry_after = code in (403, 409, 429), retry_after


class NoResponse(BackendUnreachable):
    """The API server did not respond, or the response was cut off.

    Attributes:
        had_no_effect: whether the request had no effect, so that even a POST may be retried.
        retry_after: 0, as the API server has no wish.
    """

    def __init__(self, message: str, *, had_no_effect: bool, help: str = _CLUSTER_HELP) -> None:  # noqa: A002
        super().__init__(message, help=help)
        self.had_no_effect, self.retry_after = had_no_effect, 0.0


@contextlib.contextmanager
def suppress(*codes: int) -> Iterator[None]:
    """In a `with`, go on after it if the API server refuses with one of these codes."""
    try:
        yield
    except ApiError as error:
        if error.code not in codes:
            raise


def may_repeat(method: str, body: Mapping[str, Any] | None, error: TemporaryApiError | NoResponse) -> bool:
    """Return whether a request that has failed may be sent again as it is."""
    if isinstance(error, ApiError) and error.is_stale and "resourceVersion" in (body or {}).get("metadata", {}):
        return False  # the version never comes back
    return method != "POST" or error.had_no_effect


def from_response(code: int, body: bytes, context: str, retry_after: str | None = None, path: str = "") -> ApiError:
    """Return the error for a response of status 400 or more; `retry_after` is its header, `path` the request's."""
    try:
        return _from_status(code, _status(body), body, context, retry_after, path)
    except (AttributeError, LookupError, TypeError):  # fields of other types than Kubernetes gives them
        return ApiError(code, f"the API server refuses with HTTP status {code}, and its answer is no Status")


def _from_status(
    code: int, status: dict[str, Any], body: bytes, context: str, retry_after: str | None, path: str
) -> ApiError:
    message = status.get("message") or body.decode(errors="replace").strip() or f"HTTP status {code}"
    details = status.get("details") or {}
    if code == 401:
        return ApiError(
            code,
            f'the API server of context "{context}" refuses your credentials: they are wrong, or have expired',
            help="log in again as your cluster's provider describes; `kubectl get pods` must work first",
        )
    if code == 403 and (match := _TERMINATING.search(message)):
        return NamespaceTerminating(match[1])
    if code == 403 and (match := _FORBIDDEN.search(message)):
        return _forbidden(**match.groupdict())
    if code == 403 and (match := _REFUSED_GRANT.search(message)):
        return _refused_grant(match["user"], message, path)
    if code == 409 and (fields := list(_owned_fields(status))):
        return _conflict(details, path, fields)
    if code == 404 and details.get("kind") == "namespaces":
        name = details["name"]
        return ApiError(code, f'there is no namespace "{name}"', help=f"kubectl create namespace {name}")
    if invalid := field_errors.outside_schema(message):
        return ApiError(code, f"the API server refuses: {message}", invalid=invalid)
    if code in _TEMPORARY or (code == 409 and status.get("reason") == "Conflict"):  # a race with another client
        message = f'the API server of context "{context}" can\'t serve the request now: {message}'
        wait = retry_after if retry_after and retry_after.isdigit() else 0
        return TemporaryApiError(code, message, retry_after=float(wait))
    if _KUEUE in message:
        return ApiError(
            code,
            f"Kueue refuses the change: {message.partition(_KUEUE)[2]}",
            help="Kueue does not allow this change on a running cluster: run `tfk8s down`, then `tfk8s up`",
        )
    return ApiError(code, f"the API server refuses: {message}", invalid=field_errors.invalid(details))


def at_startup(error: ApiError) -> TemporaryApiError:
    """Return the error for a response of an API server that has just started and may not have read its Roles."""
    return TemporaryApiError(error.code, str(error), help=error.help)


def unreachable(error: Exception, context: str, url: str) -> NoResponse:
    """Return the error for a request without a response."""
    server = f'the API server of context "{context}" ({url})'
    problem = _certificate_problem(error)
    if "expired" in problem or "not yet valid" in problem:
        message = f"the certificate of {server} can't be trusted: {problem}"
        help_ = "check this machine's clock; if it is right, have the certificate renewed"
        return NoResponse(message, had_no_effect=True, help=help_)
    if problem:
        message = f"{server} is not the one that the kubeconfig trusts: {problem}"
        help_ = "if the cluster was re-created, fetch its kubeconfig again"
        return NoResponse(message, had_no_effect=True, help=help_)
    message = f"{server} does not answer: {_reason(error)}"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return NoResponse(message, had_no_effect=True, help=_PROXY_HELP)
    return NoResponse(message, had_no_effect=isinstance(error, _NOT_CONNECTED))


def _certificate_problem(error: Exception) -> str:
    """Return the reason why the server's certificate is not trusted; "" for another error."""
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
        return "its answer was cut off"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"the proxy failed: {_reason(error.original_error)}"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _forbidden(user: str, verb: str, resource: str, group: str, namespace: str | None) -> ApiError:
    kind, _, subresource = resource.partition("/")
    kind = f"{kind}{f'.{group}' if group else ''}{f'/{subresource}' if subresource else ''}"
    scope = f'in namespace "{namespace}"' if namespace else "in all namespaces"
    permission = rbac.find(verb, resource, group)
    if user == _ANONYMOUS:  # a permission for this user would be everybody's
        help_ = "the kubeconfig has no credentials for this context: log in as your cluster's provider describes"
    elif namespace and permission:
        help_ = _role_help(user, namespace, permission.roles)
    else:
        help_ = _new_role_help(user, verb, kind, namespace)
    return ApiError(403, f'"{user}" may not {verb} {kind} {scope}', help=help_)


def _role_help(user: str, namespace: str, roles: Sequence[str]) -> str:
    flag = f"-n {namespace}"
    return (
        f"the Role {' or '.join(roles)} allows it: tfk8s roles | kubectl apply {flag} -f - creates both, "
        f"kubectl create rolebinding {_object_name(user)} {flag} --role={roles[0]} --user={shlex.quote(user)} "
        "grants one"
    )


def _new_role_help(user: str, verb: str, kind: str, namespace: str | None) -> str:
    """Return the two commands that grant what no Role of tfk8s does: in a namespace if there is one."""
    scope, flag = ("", f" -n {namespace}") if namespace else ("cluster", "")
    role = f"tfk8s-{verb}-{re.sub('[^a-z0-9]', '-', kind)}"
    return (
        f"{'a Role' if namespace else 'only a ClusterRole'} allows it: "
        f"kubectl create {scope}role {role}{flag} --verb={verb} --resource={kind} creates it, kubectl create "
        f"{scope}rolebinding {_object_name(f'{user}-{role}')}{flag} --{scope}role={role} --user={shlex.quote(user)} "
        "grants it"
    )


def _object_name(text: str) -> str:
    """Return a text as the name of an object of RBAC, which takes all but two characters, for a shell."""
    return shlex.quote(re.sub("[/%]", "-", text))


def _refused_grant(user: str, message: str, path: str) -> ApiError:
    namespace = path.partition("/namespaces/")[2].partition("/")[0]
    rights = (
        f"{' and '.join(re.findall('[a-z]+', verbs))} {resource}{f'.{group}' if group else ''}"
        for group, resource, verbs in _RULE.findall(message)
    )
    where = f'in namespace "{namespace}": {", ".join(dict.fromkeys(rights))}'
    text = f'"{user}" may not create a Role with rights that it lacks {where}'
    return ApiError(403, text, help=_role_help(user, namespace, [rbac.USER_ROLE]))


def _conflict(details: dict[str, Any], path: str, fields: Sequence[str]) -> ApiError:
    _, kind, name = f"//{path}".rsplit("/", 2)
    kind, name = details.get("kind") or kind, details.get("name") or name
    cure = "release the field there"
    if 'field spec.replicas is owned by "kubectl"' in fields:  # by `kubectl scale`, which releases nothing
        cure = f"kubectl scale {kind} {name} --replicas=NUMBER, with the number that tfk8s is to set"
    advice = f"{cure}, or delete the object; tfk8s never takes over fields"
    return ApiError(409, f'conflict on {kind} "{name}": {"; ".join(fields)}', help=advice)


def _owned_fields(status: dict[str, Any]) -> Iterator[str]:
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "FieldManagerConflict":
            owner = re.search(r'"[^"]*"', cause.get("message", ""))
            field = cause.get("field", "").lstrip(".")
            yield f"field {field} is owned by {owner[0] if owner else 'another field manager'}"


def _status(body: bytes) -> dict[str, Any]:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}
