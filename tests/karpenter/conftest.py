"""Fixtures of the tests with a real Karpenter, in the kind cluster of the current kubeconfig context."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_api import KubeApi
from observed import WAIT
from pool import Pool

from tfk8s import polling

OPERATOR = Path(__file__).with_name("operator.sh")
BUILT = os.environ.get("TFK8S_KARPENTER", str(Path.home() / ".cache" / "tfk8s-karpenter"))


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture(scope="session")
def karpenter(client: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build Karpenter, unless that was done, and run Karpenter while the tests run."""
    subprocess.run([OPERATOR, "build", BUILT], check=True, timeout=1800)
    folder = tmp_path_factory.mktemp("karpenter")
    kubeconfig, log = folder / "kubeconfig", folder / "log"
    kubeconfig.write_bytes(
        subprocess.check_output(["kubectl", "config", "view", "--raw", "--minify", "--context", client.context])
    )
    with log.open("wb") as output:
        operator = subprocess.Popen([OPERATOR, "run", BUILT, kubeconfig], stdout=output, stderr=output)
        try:
            started = (
                '"controller":"nodepool.readiness","controllerGroup":"karpenter.sh","controllerKind":"NodePool","worker'
            )
            polling.wait_until(lambda: started in log.read_text() or operator.poll() is not None, "Karpenter", WAIT)
            assert operator.poll() is None, log.read_text()[-2000:]
            yield
        finally:
            operator.send_signal(signal.SIGTERM)
            operator.wait(timeout=60)


@pytest.fixture
def pool(client: KubeApi, karpenter: None) -> Iterator[Callable[..., Pool]]:
    """Makes pools: of spot nodes, unless another capacity is named, with a limit of cores."""
    made = []

    def make(capacity: str = "spot", cores: str = "64") -> Pool:
        made.append(Pool(client, capacity, cores))
        return made[-1]

    yield make
    for one in made:
        one.remove()
