"""Objects with the zip of the package, compared by the files in it: another zlib may compress the same otherwise."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import Any

from tfk8s.render import manifests, package_files


def with_files(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects with the files of each ConfigMap's zip in the place of the zip and of its digest."""
    return [_with_files(item) if "binaryData" in item else item for item in objects]


def _with_files(item: dict[str, Any]) -> dict[str, Any]:
    packed = base64.b64decode(item["binaryData"][package_files.KEY], validate=True)
    annotations = item["metadata"]["annotations"]
    assert annotations[manifests.DIGEST] == hashlib.sha256(packed).hexdigest()
    metadata = {**item["metadata"], "annotations": {**annotations, manifests.DIGEST: "that of the zip"}}
    files = package_files.unpack(packed)
    return {**item, "metadata": metadata, "binaryData": {**item["binaryData"], package_files.KEY: files}}


def without_zip(text: str) -> str:
    """Return the YAML of objects without the zip and its digest."""
    digest, packed = re.escape(manifests.DIGEST), re.escape(package_files.KEY)
    return re.sub(rf"({digest}: )'?[0-9a-f]{{64}}'?|({packed}: )[A-Za-z0-9+/]{{1000,}}=*", r"\1\2…", text)
