"""Lines of TensorFlow's own log among those of users."""

from __future__ import annotations

import re

# TensorFlow's C++ writes two forms of lines: its own (tsl/platform/default/logging.cc), and absl's
# (absl/log/internal/log_format.cc), before which absl warns once. Users' Python writes neither: its files end in .py.
_CPP_LINE = re.compile(
    r"""(?:\d{4}-\d\d-\d\d[ ]\d\d:\d\d:\d\d\.\d+:[ ]([IW])[ ]    # 2026-01-02 03:04:05.678901: I
    |([IW])\d{4}[ ]\d\d:\d\d:[\d.]+[ ]+\d+[ ])                # I0102 03:04:05.678901   12345
    \S+\.(?:cc|cpp|cu|h):\d+\][ ]?                           # tensorflow/core/platform/file.cc:210]
    (.*)""",
    re.ASCII | re.VERBOSE,
)
_OTHER_LINES = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "To enable the following instructions: ",  # the second line of cpu_feature_guard.cc
)
_PROBLEM = re.compile("fail|error|exhausted|out of memory|OP_REQUIRES", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+ ", re.ASCII)  # of `LogOptions.timestamps`
_MESSAGE_LINE = re.compile(r"\s*(?:\w+(?:: .*| \{)|\})?", re.ASCII)  # of a message in protobuf's text format


class TensorFlowLines:
    """Finds the lines of TensorFlow's own log that are of no interest to a user, in the output of one process.

    That are informational lines and warnings of its C++. Errors, fatal errors, warnings of a failure and all lines of
    Python are of interest.
    """

    def __init__(self) -> None:
        self._message_goes_on = False  # the SessionOptions that each start prints have lines of their own

    def include(self, line: str) -> bool:
        """Return whether the next line is of no interest.

        Args:
            line: a line of the output, with its time or without.
        """
        text = _TIME.sub("", line, count=1) if _TIME.match(line) else line
        if self._message_goes_on and _MESSAGE_LINE.fullmatch(text):
            self._message_goes_on = text != ""
            return True
        match = _CPP_LINE.match(text)
        self._message_goes_on = match is not None and match[3].startswith("SessionOptions: ")
        if match is None:
            return text.startswith(_OTHER_LINES)
        return not (_PROBLEM.search(match[3]) if "W" in match.groups()[:2] else "OP_REQUIRES failed" in match[3])
