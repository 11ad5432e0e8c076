"""The way of this user to a bucket: credentials, region and server, as AWS' tools and gcloud find them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator

from tfk8s.backends.history.bucket_session import BucketSession
from tfk8s.core.history.shared import BucketPlace
from tfk8s.errors import InvalidInput
from tfk8s.task.buckets.bucket_client import DEFAULT_REGIONS, BucketClient
from tfk8s.task.buckets.bucket_server import header_value
from tfk8s.task.buckets.bucket_signature import Keys

MISSING_HELP = "pip install 'tfk8s[buckets]'"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
_OF_AWS = re.compile(r"https://s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")


def find(place: BucketPlace, endpoint: str | None, note: Callable[[int], None]) -> Callable[[], BucketClient]:
    """Return a function that makes clients of a bucket, each with a connection of its own.

    The packages may ask the user for a code, on the terminal.

    Args:
        endpoint: the URL of the server of an s3:// bucket; None is what AWS' tools use.
        note: takes the number of bytes of each block that arrives.

    Raises:
        InvalidInput: a package is missing.
        BucketFailure: a key has characters that no key has.
        Exception: of the package that looks for credentials.
    """
    return _of_gcloud(place, note) if place.scheme == "gs" else _of_aws(place, endpoint, note)


def _of_aws(place: BucketPlace, endpoint: str | None, note: Callable[[int], None]) -> Callable[[], BucketClient]:
    with _needs("botocore"):
        import botocore.exceptions
        import botocore.session
    session = botocore.session.get_session()
    credentials = session.get_credentials()
    if credentials is None:
        raise botocore.exceptions.NoCredentialsError
    keys = functools.partial(_keys_of_aws, credentials)
    keys()
    told = session.create_client("s3").meta  # for the URL of variables and profiles
    if not endpoint:
        endpoint = "" if _OF_AWS.fullmatch(told.endpoint_url) else told.endpoint_url
    serve = functools.partial(BucketSession, ca_file=session.get_config_variable("ca_bundle") or "", note=note)
    region = os.environ.get("AWS_REGION") or told.region_name or DEFAULT_REGIONS["s3"]
    return lambda: BucketClient(place, endpoint, keys, region, serve)


def _keys_of_aws(credentials: object) -> Keys:
    """Return keys that hold now: botocore renews them."""
    key, secret, token = credentials.get_frozen_credentials()[:3]  # type: ignore[attr-defined]  # it has no types
    return Keys(header_value(key, "the access key"), secret, header_value(token or "", "the session's token"))


def _of_gcloud(place: BucketPlace, note: Callable[[int], None]) -> Callable[[], BucketClient]:
    with _needs("google-auth"):
        import google.auth
        import google.auth.transport.requests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a user's credentials without a project for quotas, which reading needs not
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    lock = threading.Lock()

    def keys() -> Keys:
        with lock:
            if not credentials.valid:
                credentials.refresh(google.auth.transport.requests.Request())
            return Keys("", "", header_value(credentials.token, "the token"))

    keys()
    return lambda: BucketClient(
        place, "", keys, DEFAULT_REGIONS["gs"], functools.partial(BucketSession, ca_file="", note=note)
    )


@contextlib.contextmanager
def _needs(package: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InvalidInput(f"a history in a bucket needs {package}", help=MISSING_HELP) from error
