"""The signature of a request to a bucket. Standard library only: this file runs in pods.

Sources: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)" in the Amazon S3 API
Reference; "V4 signing process" in Google's documentation of Cloud Storage, which takes the same with HMAC keys.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import NamedTuple

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE, _END = "s3", "aws4_request"


class Keys(NamedTuple):
    """The keys that a request is signed with.

    Attributes:
        id, secret: the access key; "" if the token alone counts.
        token: of a session, or of Google's metadata server; "" without one.
        expires: the time in seconds since the epoch.
    """

    id: str
    secret: str
    token: str = ""
    expires: float = float("inf")


def sign(
    keys: Keys, region: str, method: str, host: str, target: str, content: bytes, moment: float
) -> dict[str, str]:  # fmt: skip
    """Return the headers of a request.

    Args:
        region: the bucket's.
        host: as in the URL, with the port if it is not that of the scheme.
        target: the path and the query as they are sent: quoted, and the query sorted.
        moment: the time in seconds since the epoch.
    """
    if not keys.id:
        return {"host": host, "authorization": f"Bearer {keys.token}"}
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    digest = hashlib.sha256(content).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    path, _, query = target.partition("?")
    names = ";".join(headers)  # they are sorted
    lines = (method, path, query, *(f"{name}:{value}" for name, value in headers.items()), "", names, digest)
    scope = f"{stamp[:8]}/{region}/{_SERVICE}/{_END}"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in (stamp[:8], region, _SERVICE, _END):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": f"{_ALGORITHM} {credential}"}
