"""Objects with the zip of the package, compared by the files in it: another zlib may compress the same otherwise."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Iterable
from typing import Any

from tfk8s.render import manifests, package_files


def unpack(data: bytes) -> dict[str, str]:
    """Return the text of each file in a zip, by its path in the package."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        names = packed.namelist()
        assert all(name.startswith("tfk8s/") for name in names)
        return {name.removeprefix("tfk8s/"): packed.read(name).decode() for name in names}


def with_files(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects with the files of each ConfigMap's zip in the place of the zip and of its digest."""
    return [_with_files(item) if "binaryData" in item else item for item in objects]


def _with_files(item: dict[str, Any]) -> dict[str, Any]:
    packed = base64.b64decode(item["binaryData"][package_files.KEY], validate=True)
    annotations = item["metadata"]["annotations"]
    assert annotations[manifests.DIGEST] == hashlib.sha256(packed).hexdigest()
    metadata = {**item["metadata"], "annotations": {**annotations, manifests.DIGEST: "that of the zip"}}
    files = unpack(packed)
    return {**item, "metadata": metadata, "binaryData": {**item["binaryData"], package_files.KEY: files}}


def without_zip(text: str) -> str:
    """Return the YAML of objects without the zip and its digest."""
    digest, packed = re.escape(manifests.DIGEST), re.escape(package_files.KEY)
    return re.sub(rf"({digest}: )'?[0-9a-f]{{64}}'?|({packed}: )[A-Za-z0-9+/]{{1000,}}=*", r"\1\2…", text)
