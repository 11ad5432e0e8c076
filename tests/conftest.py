"""Set-up of all tests."""

import signal

import pytest

pytest.register_assert_rewrite("fakes", "backend_contract")

# A shell's background job ignores SIGINT, and so would all programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
