"""A bucket of S3 on this machine, by moto's server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tfk8s.polling import wait_until
from tfk8s.task.buckets.bucket_signature import Keys, sign

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAPLANTEDKEY", "AWS_SECRET_ACCESS_KEY": "hunter2-planted-secret-key"}


@contextlib.contextmanager
def moto_server(host: str = "127.0.0.1") -> Iterator[str]:
    """Run the server in a `with`; give its URL."""
    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://{host}:{port}"
    words = (sys.executable, "-m", "moto.server", "--host", host, "--port", str(port))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: answers(host, port), "moto's server to answer", 60)
            yield url
        finally:
            process.kill()


def answers(host: str, port: int) -> bool:
    """Return whether a server listens."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def make_bucket(url: str, name: str) -> None:
    """Make a bucket."""
    host = url.partition("://")[2]
    headers = sign(Keys("x", "y"), "us-east-1", "PUT", host, f"/{name}", b"", time.time())
    connection = http.client.HTTPConnection(host, timeout=30)
    with contextlib.closing(connection):
        connection.request("PUT", f"/{name}", b"", headers)
        assert connection.getresponse().status == 200
