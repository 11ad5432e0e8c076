"""Checks of a Kubernetes cluster: the API server, the permissions, the GPUs and NetworkPolicy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tfk8s import concurrency, render
from tfk8s.backends.kubernetes.api_server import access_review, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.claims import DRIVER_ADVICE, has_driver
from tfk8s.backends.kubernetes.nodes import conditions, free_gpus
from tfk8s.backends.kubernetes.nodes.cluster_fit import find_room
from tfk8s.core.spec import JobFile
from tfk8s.core.storage import claims
from tfk8s.errors import Tfk8sError, listed
from tfk8s.features.doctor import network
from tfk8s.features.doctor.check import Check, State
from tfk8s.render import gang, rbac
from tfk8s.render.pod_volumes import BUCKET_DRIVER
from tfk8s.render.rbac import Permission

_COMMANDS = ("up", "submit", "down")
_MAX_NAMED = 3


def checks(
    context: str | None, namespace: str | None, image: str | None, job_file: JobFile | None = None
) -> Iterator[Check]:
    """Yield the checks, up to one that fails and that the others depend on.

    Args:
        context: the kubeconfig's context; None is the current context.
        namespace: the namespace; None is the context's namespace.
        image: an image with Python for the pods that test NetworkPolicy; None skips the test.
        job_file: a job file whose tasks need room on the nodes.
    """
    try:
        client = Client(context)
        namespace = namespace or (job_file and job_file.namespace) or client.namespace
        yield Check("kubeconfig", State.OK, f'context "{client.context}", namespace "{namespace}"')
    except Tfk8sError as error:
        yield _failed("kubeconfig", error)
        return
    try:
        version = client.get("/version")["gitVersion"]
        served = client.require_version()
        yield Check("API server", State.OK, f"Kubernetes {version} at {client.url}")
    except Tfk8sError as error:
        yield _failed("API server", error)
        return
    yield (namespace_check := _namespace(client, namespace))
    if namespace_check.state is not State.MISSING:
        yield from _permissions(client, namespace, has_gangs=gang.VERSION in served)
    yield gangs(served)
    yield nodes(client)
    yield _gpus(client, namespace)
    if job_file is not None:
        yield room(client, namespace, job_file)
        if claims.has_bucket(job_file):
            yield bucket_driver(client)
    if namespace_check.state is not State.MISSING:
        yield network.egress(client, namespace, job_file)
        yield from network.policies(client, namespace, image)


def _failed(name: str, error: Tfk8sError) -> Check:
    return Check(name, State.MISSING, str(error), error.help or "")


def _namespace(client: Client, namespace: str) -> Check:
    try:
        exists = client.find(f"/api/v1/namespaces/{namespace}") is not None
    except ApiError as error:
        return Check("namespace", State.UNKNOWN, str(error))
    if not exists:
        return Check(
            "namespace", State.MISSING, f'"{namespace}" does not exist', f"kubectl create namespace {namespace}"
        )
    return Check("namespace", State.OK, f'"{namespace}" exists')


# ---- permissions ---------------------------------------------------------------------------------------------------


def _permissions(client: Client, namespace: str, *, has_gangs: bool) -> list[Check]:
    """Return a check of the permissions for each of `_COMMANDS` and for each feature that the API server has."""
    features = [feature for feature in rbac.FEATURES if has_gangs or feature != rbac.GANGS]
    needed = [
        permission
        for permission in rbac.PERMISSIONS
        if not set(permission.commands).isdisjoint(_COMMANDS) and (has_gangs or permission.group != gang.GROUP)
    ]
    try:
        allowed = concurrency.map_parallel(
            lambda permission: access_review.may(client, namespace, permission), needed, free_gpus.MAX_REQUESTS
        )
    except Tfk8sError as error:
        return [Check("permissions", State.UNKNOWN, str(error), error.help or "")]
    missing = [permission for permission, is_allowed in zip(needed, allowed, strict=True) if not is_allowed]
    always = [permission for permission in missing if not permission.features]
    checks = [
        permissions_check(command, namespace, [permission for permission in always if command in permission.commands])
        for command in _COMMANDS
    ]
    for feature in features:
        of_feature = [permission for permission in missing if feature in permission.features]
        checks.append(feature_check(feature, namespace, of_feature))
    return checks


def feature_check(feature: str, namespace: str, missing: Sequence[Permission]) -> Check:
    """Return the check of the permissions for a feature, which few job files have: nothing else needs them."""
    check = permissions_check(feature, namespace, missing)
    if check.state is State.OK:
        return check
    return replace(check, state=State.NOTE, detail=f"job files with them would be refused: {check.detail}")


def permissions_check(needed_by: str, namespace: str, missing: Sequence[Permission]) -> Check:
    """Return the check of a command's or a feature's permissions, with the Role that grants the missing permissions."""
    name = f"permissions: {needed_by}"
    if not missing:
        return Check(name, State.OK, f'all, in namespace "{namespace}"')
    role = rbac.SUBMIT_ROLE if all(rbac.SUBMIT_ROLE in permission.roles for permission in missing) else rbac.USER_ROLE
    return Check(
        name,
        State.MISSING,
        f'you may not {listed(list(map(str, missing)), _MAX_NAMED)} in namespace "{namespace}"',
        f"ask an administrator for the Role {role}: `tfk8s roles | kubectl apply -n {namespace} -f -` creates it, "
        f"`kubectl create rolebinding YOU -n {namespace} --role={role} --user=YOU` grants it",
    )


# ---- gangs ----------------------------------------------------------------------------------------------------------


def gangs(served: Collection[str]) -> Check:
    """Return whether new clusters are gangs, by the versions of groups that the API server has."""
    if gang.VERSION in served:
        return Check("gangs", State.OK, "the tasks of a new cluster start together or not at all, by a PodGroup")
    return Check("gangs", State.OK, f"none: the API server has no {gang.VERSION}, so tasks start one by one")


# ---- nodes ---------------------------------------------------------------------------------------------------------


def nodes(client: Client) -> Check:
    """Return the nodes that are not ready, or keep pods away, and why."""
    try:
        found = client.get(paths.NODES)["items"]
    except ApiError as error:
        return Check("nodes", State.UNKNOWN, str(error))
    number = f"{len(found)} node{'s' * (len(found) != 1)}"
    troubles, taints = conditions.troubles(found), conditions.taints(found)
    details = "; ".join([*troubles, *(f"taint {taint}" for taint in taints)]) or "all ready, without taints"
    advice = "keep a cluster away from a node with avoid: [NODE] in the job file" if troubles else ""
    return Check("nodes", State.NOTE if troubles else State.OK, f"{number}: {details}", advice)


# ---- GPUs ----------------------------------------------------------------------------------------------------------


def _gpus(client: Client, namespace: str) -> Check:
    try:
        return Check("GPUs", State.OK, free_gpus.describe(client, namespace))
    except ApiError as error:
        return Check("GPUs", State.UNKNOWN, str(error))


# ---- buckets -------------------------------------------------------------------------------------------------------


def bucket_driver(client: Client) -> Check:
    """Return whether the cluster has the driver that mounts buckets."""
    found = has_driver(client)
    if found is None:
        return Check("buckets", State.UNKNOWN, f"you may not see whether there is a CSIDriver {BUCKET_DRIVER}")
    if not found:
        return Check("buckets", State.MISSING, f"there is no CSIDriver {BUCKET_DRIVER}", DRIVER_ADVICE)
    return Check("buckets", State.OK, f"CSIDriver {BUCKET_DRIVER}")


# ---- room ----------------------------------------------------------------------------------------------------------


def room(client: Client, namespace: str, job_file: JobFile) -> Check:
    """Return whether the nodes have room for all tasks of a job file together."""
    try:
        found = find_room(client, namespace, job_file, render.objects(job_file, namespace))
    except Tfk8sError as error:
        return _failed("room", error)
    if found.is_final:
        return Check("room", State.MISSING, found.shortage, "or add such nodes")
    if found.shortage:
        return Check("room", State.UNKNOWN, found.shortage)
    if not found.is_known:
        return Check(
            "room", State.UNKNOWN, f"the tasks request {found.asked} in sum; the scheduler or an autoscaler decides"
        )
    return Check("room", State.OK, f"the tasks request {found.asked} in sum, and the nodes lack nothing")
