"""The errors of kubeconfigs and credential plugins, as exceptions of tfk8s. They show no secret."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from kubernetes.config import ConfigException

from tfk8s.backends.kubernetes.api_server.errors import NoResponse
from tfk8s.errors import InvalidInput, quoted, there_are


def no_kubeconfig(paths: str) -> InvalidInput:
    """Return the error for kubeconfig files of which none exists."""
    return InvalidInput(
        f"no Kubernetes cluster is configured: there is no kubeconfig ({paths})",
        help="create a cluster with `kind create cluster --config kind-config.yaml`, or use --local",
    )


def no_context(paths: str, name: str, names: Sequence[str]) -> InvalidInput:
    """Return the error for a context that a kubeconfig lacks; without a name, for a missing current context."""
    if name:
        contexts = ", ".join(names) or "none"
        message = f"{paths} has no context {quoted(name)}; it has {contexts}"
        return InvalidInput(message, help="kubectl config get-contexts")
    return InvalidInput(
        f"{paths} names no current context; {there_are(names, 'context')}",
        help="choose a context with --context or `kubectl config use-context NAME`",
    )


@contextlib.contextmanager
def kubeconfig_errors(subject: str) -> Iterator[None]:
    """Raise an InvalidInput for a kubeconfig that the official client can't use. The error shows no field's content."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"this is not YAML in line {mark.line + 1}: {error.problem}" if mark else "this is not YAML"  # type: ignore[attr-defined]
    except ConfigException as error:
        reason = _without_entry(error)
    except ssl.SSLError as error:
        detail = error.reason.lower().replace("_", " ") if error.reason else "not PEM, or protected by a password"
        reason = f"a certificate or key is invalid: {detail}"
    except OSError as error:
        file = "" if error.filename == subject else f"{error.filename}: "
        reason = f"{file}{error.strerror}"
    except (ValueError, TypeError, AttributeError, LookupError):
        reason = "a field has a wrong type or value"
    else:
        return
    raise InvalidInput(f"{subject} can't be used: {reason}", help="`kubectl config view` shows it without its secrets")


@contextlib.contextmanager
def plugin_errors(subject: str, plugin: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error for a credential plugin that fails. The error shows nothing of the plugin's output."""
    command = plugin.get("command")
    try:
        yield
    except FileNotFoundError:
        raise InvalidInput(
            f'{subject} can\'t be used: its credential plugin "{command}" is not installed, or not in PATH',
            help=_printable(plugin.get("installHint") or "install the plugin; `kubectl get pods` needs it too"),
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
        reason = "its output is no ExecCredential with a status"
    else:
        return
    message = f'the credential plugin "{command}" of {subject} gave no credentials: {reason}'
    raise NoResponse(message, had_no_effect=True, help="see its messages above; `kubectl get pods` must work first")


def _without_entry(error: ConfigException) -> str:
    """Return the official client's message without the entry after the file's path. Entries hold secrets."""
    return str(error).removeprefix("Invalid kube-config file. ").partition("/{")[0]


def _printable(text: str) -> str:
    """Return a text in one line, without characters that could change a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
