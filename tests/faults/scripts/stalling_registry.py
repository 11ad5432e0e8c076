"""A registry of images that takes requests and never answers: a pull begins, and does not end."""

from __future__ import annotations

import http.server
import sys
import time


class Stalling(http.server.BaseHTTPRequestHandler):
    default_request_version = "HTTP/1.1"  # answers the greeting of TLS with a status line: containerd then takes HTTP

    def do_HEAD(self) -> None:
        time.sleep(3600)

    do_GET = do_HEAD  # noqa: N815 - the name is http.server's


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Stalling).serve_forever()
