"""The keys of a pod for a bucket, renewed before they expire. Standard library only: this file runs in pods.

Sources: "AssumeRoleWithWebIdentity" in the AWS Security Token Service API Reference, for IAM roles of ServiceAccounts;
"Container credential provider" in the AWS SDKs and Tools Reference Guide, for EKS Pod Identity; "About VM metadata" and
"About Workload Identity Federation for GKE" in Google's documentation.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tfk8s.task.buckets.bucket_server import BucketFailure, BucketServer, header_value, parse_xml, refusal
from tfk8s.task.buckets.bucket_signature import Keys

_EARLY = 300.0  # seconds before keys expire
_LONGEST = 7 * 24 * 3600  # seconds that a token holds
_MOST = 64 << 10  # bytes of an answer, and of a token's file
METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
_SESSION = "tfk8s-history"
_DOMAINS = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu", "us-iso": "c2s.ic.gov", "us-isob": "sc2s.sgov.gov"}

Source = Callable[[], Keys]


class BucketKeys:
    """Keys that are asked for when they are needed.

    Args:
        source: returns new keys.
        clock: returns the time in seconds since the epoch.
    """

    def __init__(self, source: Source, clock: Callable[[], float] = time.time) -> None:
        self._source, self._clock = source, clock
        self._keys: Keys | None = None

    def get(self) -> Keys:
        """Return keys that hold for a request.

        Raises:
            OSError, HTTPException, ValueError: there are none.
        """
        now = self._clock()
        if self._keys is None or self._keys.expires - _EARLY < now:
            try:
                self._keys = self._source()
            except Exception:
                if self._keys is None or self._keys.expires <= now:
                    raise
        return self._keys


def source_of(environment: Mapping[str, str], scheme: str, region: str) -> Source:
    """Return the source of keys that the variables of the pod name, in the order of the AWS SDKs.

    Args:
        scheme: "gs" has the metadata server as its last source.
        region: for AWS' servers.
    """
    if name := environment.get("TFK8S_SECRET"):  # and no other identity of the pod
        return lambda: _of_secret(environment, name)
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        url = environment.get("AWS_ENDPOINT_URL_STS") or aws_url("sts", region)
        return lambda: _of_web_identity(url, environment)
    if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return lambda: _of_container(environment)
    return _of_metadata if scheme == "gs" else _of_nothing


def aws_url(service: str, region: str) -> str:
    """Return the URL of a service of AWS in a region, such as "sts"."""
    begin = next((begin for begin in _DOMAINS if region.startswith(f"{begin}-")), "")
    return f"https://{service}.{region}.{_DOMAINS.get(begin, 'amazonaws.com')}"


def _of_secret(environment: Mapping[str, str], secret: str) -> Keys:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    if missing := [name for name in names if not environment.get(name)]:
        raise BucketFailure(f"the Secret {secret} is missing, or lacks {missing[0]}")
    token = header_value(environment.get("AWS_SESSION_TOKEN", ""), "AWS_SESSION_TOKEN")
    return Keys(header_value(environment[names[0]], names[0]), header_value(environment[names[1]], names[1]), token)


def _of_web_identity(url: str, environment: Mapping[str, str]) -> Keys:
    query = {
        "Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": environment["AWS_ROLE_ARN"],
        "RoleSessionName": _SESSION, "WebIdentityToken": _token_file(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]),
    }  # fmt: skip
    content = urllib.parse.urlencode(query).encode()
    body = _ask("POST", url, {"content-type": "application/x-www-form-urlencoded"}, content)
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    found = parse_xml(body).find(".//{*}Credentials")
    return _temporary({name: found.findtext(f"{{*}}{name}") for name in names} if found is not None else {}, names)


def _of_container(environment: Mapping[str, str]) -> Keys:
    path = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    headers = {"authorization": _token_file(path)} if path else {}
    found = _json(_ask("GET", environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"], headers))
    return _temporary(found, ("AccessKeyId", "SecretAccessKey", "Token", "Expiration"))


def _of_metadata() -> Keys:
    begin, found = time.time(), _json(_ask("GET", METADATA, {"metadata-flavor": "Google"}))
    token, seconds = found.get("access_token"), found.get("expires_in")
    if not isinstance(token, str) or type(seconds) is not int or not 0 <= seconds <= _LONGEST:
        raise BucketFailure("the metadata server gives no token")
    return Keys("", "", header_value(token, "the token"), begin + seconds)


def _of_nothing() -> Keys:
    raise BucketFailure("the pod has no keys for the bucket: the history's secret in the job file names some")


def _temporary(found: Mapping[str, Any], names: tuple[str, ...]) -> Keys:
    values = [found.get(name) for name in names]
    if not all(isinstance(value, str) and value for value in values):
        raise BucketFailure("the keys for the bucket are incomplete")
    key, secret, token, expires = map(str, values)
    try:
        moment = datetime.fromisoformat(expires).timestamp()
    except ValueError:
        raise BucketFailure("the keys for the bucket have no time of their end") from None
    return Keys(header_value(key, names[0]), header_value(secret, names[1]), header_value(token, names[2]), moment)


def _token_file(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii", errors="replace") as file:
            return header_value(file.read(_MOST), "the token's file")
    except OSError as error:  # a missing one is not taken for a missing folder of the record
        if isinstance(error, BucketFailure):
            raise
        raise BucketFailure(f"the token's file can't be read: {error.strerror}") from None


def _ask(method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> bytes:
    server = BucketServer(url)
    parts = urllib.parse.urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        answer = server.send(method, target, headers, content, _MOST)
    finally:
        server.close()
    if answer.status != 200:
        raise BucketFailure(f"{server.host} gives no keys for the bucket: {refusal(answer.status, answer.body)}")
    return answer.body


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BucketFailure("the keys for the bucket have a wrong form")
    return found
