"""The API server's refusals of pods: by quotas, LimitRanges, pod security and webhooks, and for what is missing.

The texts are those of Kubernetes' admission plugins, which the events of the pods' controllers repeat.
"""

from __future__ import annotations

import re

from tfk8s.core.resources import NOTHING, Resources
from tfk8s.core.status import Phase

PhaseAndReason = tuple[Phase, str]

_NOT_FOUND = re.compile(
    r"(secret|configmap|persistentvolumeclaim|serviceaccount) \"([^\"]*)\" not found", re.IGNORECASE
)
_KINDS = {
    "configmap": "ConfigMap",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "secret": "Secret",
    "serviceaccount": "ServiceAccount",
}
_NO_KEY = re.compile(r"couldn't find key (\S+) in (Secret|ConfigMap) [^/]+/(\S+)")
_OWN_VOLUME = 'for volume "tfk8s"'  # render/pods.py and render/script_job.py
_PROGRAM_VOLUME = 'for volume "program"'  # render/program_job.py
_QUOTA = re.compile(r"exceeded quota: ([^,]+), (.*)", re.DOTALL)
_NEEDED_LIMITS = re.compile(r"failed quota: ([^:]+): must specify (.*)", re.DOTALL)
_LIMIT_BELOW_REQUEST = re.compile(r"must be less than or equal to (cpu|memory) limit of (\S+)")
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]*)": (.*)', re.DOTALL)
_LIMIT_RANGE = re.compile(
    r"(?:(?:maximum|minimum) \S+ usage|\S+ max limit to request ratio) per \w+ is [^,\]]+, but [^,\]]+"
)
_AMOUNTS = re.compile(r"requested: (?P<requested>.*), used: .*, limited: (?P<limited>[^ ]*)")
_TEMPORARY = re.compile(r"error looking up service account|status unknown for quota|not yet ready to handle request")
_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")


def phase_and_reason(job: str, message: str, room: str = "") -> PhaseAndReason:
    """Return the phase of a task whose pod the API server refuses, and the reason.

    Args:
        job: the job's name in the job file.
        message: the API server's.
        room: the advice if the namespace allows less; default: change what the job asks for.
    """
    if match := _POD_SECURITY.search(message):
        return Phase.FAILED, f'the namespace\'s pod security "{match[1]}" refuses its pod: {match[2]}'
    if match := _QUOTA.search(message):
        lower = room or f"lower what jobs.{job} asks"
        return Phase.PENDING, f'the namespace\'s quota "{match[1]}" is used up ({match[2]}): {lower}'
    if match := _NEEDED_LIMITS.search(message):
        return Phase.PENDING, f'the namespace\'s quota "{match[1]}" needs {match[2]}: set jobs.{job}.cpu and memory'
    if match := _LIMIT_BELOW_REQUEST.search(message):
        limit, change = f"a {match[1]} limit of {match[2]}", room or f"set jobs.{job}.{match[1]}"
        return Phase.PENDING, f"the namespace's LimitRange gives its pod {limit}, less than its request: {change}"
    if limits := sorted(_LIMIT_RANGE.findall(message)):
        change = room or f"change jobs.{job}.cpu or memory (a task's CPU limit is a core at least), or have it changed"
        return Phase.PENDING, f"the namespace's LimitRange refuses its pod ({'; '.join(limits)}): {change}"
    if match := _PRIORITY.search(message):
        return Phase.PENDING, f'there is no PriorityClass "{match[1]}": change jobs.{job}.priority_class'
    return Phase.PENDING, missing(job, message) or f"its pod can't be created: {message}"


def missing(job: str, message: str) -> str:
    """Return what a pod's spec names and the namespace lacks, or ""."""
    match = _NOT_FOUND.search(message)
    if match is None:
        return ""
    kind, name = match[1].lower(), match[2]
    if _OWN_VOLUME in message:
        advice = "run the script again" if kind == "secret" else "`tfk8s up` creates it again"
        return f'its {_KINDS[kind]} "{name}", which tfk8s created, is gone: {advice}'
    if _PROGRAM_VOLUME in message:
        return f'there is no Secret "{name}" with the folder of the programs: `tfk8s up` creates it'
    field = "security.service_account" if kind == "serviceaccount" else f"volumes or jobs.{job}.volumes"
    return f'there is no {_KINDS[kind]} "{name}": create it, or change {field}'


def missing_variable(job: str, message: str) -> str:
    """Return what the source of a variable lacks: kubelet looks for it when it creates the container."""
    change = f"change env or jobs.{job}.env"
    if match := _NOT_FOUND.search(message):
        return f'there is no {_KINDS[match[1].lower()]} "{match[2]}": create it, or {change}'
    if match := _NO_KEY.search(message):
        return f'{match[2]} "{match[3]}" has no key "{match[1]}": add the key, or {change}'
    return ""


def is_final(message: str) -> bool:
    """Return whether the API server refuses the same pod again, unless somebody changes the namespace's rules.

    A quota that other pods use up, a ServiceAccount that Kubernetes still makes, and a webhook that does not answer may
    let the next pod pass.
    """
    if quota := _QUOTA.search(message):
        return _is_above(quota[2])
    if _TEMPORARY.search(message):
        return False
    return "is forbidden: " in message or "denied the request" in message or "is invalid: " in message


def _is_above(amounts: str) -> bool:
    """Return whether a pod asks for more than all that a quota allows, from the amounts in the message."""
    match = _AMOUNTS.search(amounts)
    try:
        asked, limited = (_parsed(match[name]) for name in ("requested", "limited")) if match else (NOTHING, NOTHING)
    except ValueError:
        return False
    return any(amount > limited[name] for name, amount in asked.amounts.items())


def _parsed(text: str) -> Resources:
    """Return amounts such as "limits.cpu=4,limits.memory=4Gi".

    Raises:
        ValueError: the text is none.
    """
    return Resources.parse(dict(pair.split("=") for pair in text.split(",")))


def is_used_up(message: str) -> bool:
    """Return whether a quota has no room now."""
    return _QUOTA.search(message) is not None
