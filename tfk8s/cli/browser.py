"""The user's browser."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def in_browser(url: str) -> Iterator[None]:
    """Open a page in the user's browser, in a `with`.

    The browser gets a file that leads to the page. Other users can read the arguments of processes, but not the file.
    """
    with tempfile.NamedTemporaryFile("w", prefix="tfk8s-", suffix=".html") as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={url}">\n')
        file.flush()
        threading.Thread(target=webbrowser.open, args=(Path(file.name).as_uri(),), daemon=True).start()
        yield
