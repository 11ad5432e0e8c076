"""The logger of all messages for the user.

A message that a user of the Python API must see is a warning, even if it is good news. Without any configuration,
Python prints warnings on standard error and drops everything below. The progress of commands is info.
"""

from __future__ import annotations

import logging

log = logging.getLogger("tfk8s")
