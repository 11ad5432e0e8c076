"""The spot nodes of providers: their label, and whether a taint of the same text keeps other pods away.

Sources: docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms; karpenter.sh, concepts, scheduling
(karpenter.sh/capacity-type); learn.microsoft.com/azure/aks/spot-node-pool; docs.aws.amazon.com/eks, managed node groups
(capacity types).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

GKE, KARPENTER = "gke", "karpenter"


class SpotNodes(NamedTuple):
    """The spot nodes of one provider.

    Attributes:
        label: the name of their label, and of their taint.
        value: the value of both.
        is_tainted: whether the nodes have the taint, with the effect NoSchedule.
    """

    label: str
    value: str
    is_tainted: bool = False

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """The tolerations of their taint, if they have one."""
        toleration = {"key": self.label, "operator": "Equal", "value": self.value, "effect": "NoSchedule"}
        return [toleration] if self.is_tainted else []


SPOT_NODES = {
    GKE: SpotNodes("cloud.google.com/gke-spot", "true", is_tainted=True),
    KARPENTER: SpotNodes("karpenter.sh/capacity-type", "spot"),
    "aks": SpotNodes("kubernetes.azure.com/scalesetpriority", "spot", is_tainted=True),
    "eks": SpotNodes("eks.amazonaws.com/capacityType", "SPOT"),
}


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether labels of nodes select spot nodes."""
    return any(labels.get(spot.label) == spot.value for spot in SPOT_NODES.values())
