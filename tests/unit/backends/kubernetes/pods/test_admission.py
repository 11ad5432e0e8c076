"""Refusals of pods: those that stay, and those that may pass."""

from __future__ import annotations

import pytest

from tfk8s.backends.kubernetes.pods import admission

FORBIDDEN = 'Error creating: pods "a-" is forbidden: '


@pytest.mark.parametrize(
    ("message", "is_final"),
    [
        (f"{FORBIDDEN}maximum cpu usage per Container is 1, but limit is 4", True),
        (f"{FORBIDDEN}failed quota: q: must specify limits.cpu for: script", True),
        (f'{FORBIDDEN}violates PodSecurity "restricted:latest": privileged', True),
        (f'{FORBIDDEN}no PriorityClass with name high was found', True),
        ('Error creating: admission webhook "w.example" denied the request: no', True),
        ('Error creating: Pod "a-" is invalid: spec.x: Invalid value', True),
        (f"{FORBIDDEN}exceeded quota: q, requested: limits.cpu=4, used: limits.cpu=1, limited: limits.cpu=3", True),
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=1,pods=1, used: cpu=2,pods=1, limited: cpu=2,pods=9", False),
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=x=1, used: cpu=2, limited: cpu=2", False),
        (f"{FORBIDDEN}exceeded quota: q, requested: nonsense", False),
        (f"{FORBIDDEN}status unknown for quota: q, resources: cpu", False),
        (f'{FORBIDDEN}error looking up service account ns/a: serviceaccount "a" not found', False),
        ('Internal error occurred: failed calling webhook "w": connection refused', False),
        ('admission webhook "w" does not support dry run', False),
        ('"ann" may not create pods in namespace "ns"', False),
        ("", False),
    ],
)  # fmt: skip
def test_a_refusal_is_final_if_the_same_pod_can_not_pass(message: str, *, is_final: bool) -> None:
    assert admission.is_final(message) is is_final
