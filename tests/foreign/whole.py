"""All tests that need no Kubernetes cluster, in the container: before a release, and not in the gate.

The name keeps pytest from collecting this file by itself. `make test-foreign-whole` names it.
"""

from __future__ import annotations

import pytest
from conftest import Container

LIMIT = 7200.0


@pytest.mark.parametrize("target", ["test", "test-training"])
def test_whole(container: Container, target: str) -> None:
    container.run(f"make {target}", timeout=LIMIT)
