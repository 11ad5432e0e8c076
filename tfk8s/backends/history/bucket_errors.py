"""The errors of a bucket and of the packages that find credentials, in one line each, with a cure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfk8s.backends.history.bucket_session import BucketUnreachable
from tfk8s.errors import ClusterError, Tfk8sError, quoted
from tfk8s.task.buckets.bucket_client import BucketRefusal
from tfk8s.task.buckets.bucket_server import BucketFailure

_MAX_WORDS = 300  # characters
_DENIED = (401, 403)
_CREDENTIALS = {
    "s3": "the credentials of AWS' tools count: aws sts get-caller-identity",
    "gs": "the credentials of gcloud count: gcloud auth application-default login",
}
_PLACES = {
    "s3": "the bucket's region and server count: AWS_REGION, AWS_ENDPOINT_URL, or the profile of AWS' tools",
    "gs": "see the names of buckets: gcloud storage ls",
}


@contextlib.contextmanager
def one_error(url: str) -> Iterator[None]:
    """Turn an error into a ClusterError that names the bucket, in a `with`."""
    try:
        yield
    except Tfk8sError:
        raise
    except Exception as error:
        help_ = _help(url.partition(":")[0], error)
        raise ClusterError(f"bucket {quoted(url)} can't be read: {words(error)}", help=help_) from error


def words(error: Exception) -> str:
    """Return the first line of an error, as a terminal may show it."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return "".join(char if char.isprintable() else "?" for char in text[:_MAX_WORDS])


def _help(scheme: str, error: Exception) -> str | None:
    match error:
        case BucketUnreachable(help=str(help_)) if help_:
            return help_
        case BucketUnreachable() | ValueError():  # of an endpoint
            return _PLACES[scheme] if scheme == "s3" else None
        case BucketRefusal():
            return (_CREDENTIALS if error.status in _DENIED else _PLACES)[scheme]
        case BucketFailure():
            return None
    return _CREDENTIALS[scheme]
