"""Runs a script in a fork of a warm pod's fork server, as the process of a script's own pod does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tfk8s.sessions import runner
from tfk8s.sessions.pod import entrypoint

exit_process = runner.exit_process


def main(arguments: Sequence[str]) -> int:
    """Run the script with its environment and in its folder; return its exit code."""
    return runner.main([*entrypoint.prepare(), *arguments])


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
