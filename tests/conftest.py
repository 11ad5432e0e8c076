"""What all tests need."""

import signal

# Who runs tests in the background of a script passes on that SIGINT is ignored, which tests of Ctrl-C can't do with.
signal.signal(signal.SIGINT, signal.default_int_handler)
