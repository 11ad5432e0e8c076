"""Signatures, compared with those of botocore."""

from __future__ import annotations

import calendar
import time
import urllib.parse

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.task.buckets.bucket_signature import Keys, sign

WORD = st.text("abcXYZ012-_.~", min_size=1, max_size=8)
PATH = st.lists(st.text("abcXYZ019-_.~ +=&%é/", min_size=1, max_size=8), min_size=1, max_size=4).map("/".join)


@given(
    method=st.sampled_from(["GET", "PUT", "DELETE"]), path=PATH,
    query=st.dictionaries(WORD, st.text(max_size=12).filter(str.isprintable), max_size=3),
    content=st.binary(max_size=64), token=st.one_of(st.just(""), WORD), secret=WORD,
    host=st.sampled_from(["s3.eu-north-1.amazonaws.com", "localhost:9000"]),
)  # fmt: skip
def test_a_signature_is_that_of_botocore(
    method: str, path: str, query: dict[str, str], content: bytes, token: str, secret: str, host: str
) -> None:
    target = urllib.parse.quote(f"/{path}", safe="/-_.~")
    if query:
        target += "?" + urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote, safe="-_.~")
    request = AWSRequest(method, f"https://{host}{target}", data=content)
    S3SigV4Auth(Credentials("AKIA", secret, token or None), "s3", "eu-north-1").add_auth(request)
    moment = calendar.timegm(time.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    headers = sign(Keys("AKIA", secret, token), "eu-north-1", method, host, target, content, moment)
    assert headers["authorization"] == request.headers["Authorization"]
    assert headers["x-amz-content-sha256"] == request.headers["X-Amz-Content-SHA256"]


def test_a_token_alone_is_a_bearers() -> None:
    assert sign(Keys("", "", "ya29"), "auto", "GET", "h", "/", b"", 0) == {"host": "h", "authorization": "Bearer ya29"}
