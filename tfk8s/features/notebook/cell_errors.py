"""Shows errors of sessions in a cell with the lines of the notebook alone, without those of TensorFlow and tfk8s."""

from __future__ import annotations

import os
import types
from typing import Any

from tfk8s.errors import Tfk8sError
from tfk8s.sessions import failures


def install(shell: Any) -> None:
    """Have an IPython shell show errors with `show`."""
    shell.set_custom_exc((Exception, KeyboardInterrupt), show)


def show(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Show an error of a cell; called as `InteractiveShell.set_custom_exc` has it.

    IPython would show the cause of a named error, too: TensorFlow's error, with a page of C++. The cause stays with the
    error. `TFK8S_DEBUG=1` shows all.
    """
    is_of_session = isinstance(error, Tfk8sError | KeyboardInterrupt) or kind.__module__.startswith("tensorflow.")
    if os.environ.get("TFK8S_DEBUG") or not is_of_session:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return
    cause, context = error.__cause__, error.__context__
    error.__cause__ = error.__context__ = None
    try:
        shell.showtraceback((kind, error, own_frames(trace)), tb_offset=tb_offset)
    finally:
        error.__context__ = context
        error.__cause__ = cause


def own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without the frames of TensorFlow and tfk8s."""
    if trace is None:
        return None
    rest = own_frames(trace.tb_next)
    if failures.is_inside(trace.tb_frame.f_code.co_filename):
        return rest
    return types.TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
