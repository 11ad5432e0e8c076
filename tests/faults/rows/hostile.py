"""Rows about a task whose pod answers as a hostile program does, in place of its server or of its Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness import node
from harness.command import PATIENCE, Ended
from harness.kube import NOW, KubeEnvironment, pod_of
from harness.row import VERDICT, Row
from rows import removals

TASK, PORT = "ps/0", 9999
# Sends the same bytes to everybody, for as long as the peer takes them. It listens beside the server, and the pod's
# network leads new connections to it.
_SERVER = """
import socket, sys, threading
def serve(stream):
    try:
        while stream.send(bytes.fromhex(sys.argv[2]) * 1000): pass
    except OSError: pass
server = socket.create_server(("", int(sys.argv[1])), backlog=64)
print("listens", flush=True)
while True: threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""
# New connections to the server's port, from other pods and from the node.
_REDIRECT = """
for chain in PREROUTING OUTPUT; do
    nsenter --target $1 --net iptables -t nat -A $chain -p tcp --dport 2222 -j REDIRECT --to-ports $2
done
"""
SENDS = {
    "empty frames without an end": bytes(9), "frames of 16 MiB": b"\xff\xff\xff" + bytes(6), "no HTTP/2": b"\xff" * 100,
}  # fmt: skip

# Commands in the pod find this in place of its Python.
_ENDLESS_ERRORS = """
nsenter --target $1 --mount sh -ec '
    printf "#!/bin/sh\\nexec yes no end >&2\\n" >/tmp/python3
    chmod 755 /tmp/python3
    mount --bind /tmp/python3 "$(readlink -f "$(command -v python3)")"'
"""


def hostile(data: bytes, *words: str) -> Callable[[KubeEnvironment], Ended]:
    """Run `submit` with these flags once the pod of the task sends these bytes."""

    def run(environment: KubeEnvironment) -> Ended:
        name, script = environment.cluster(), environment.alone("steps.py")
        process = environment.process(TASK)
        environment.at_end(lambda: removals.delete(TASK, **NOW)(environment))
        program = ("python3", "-c", _SERVER, PORT, data.hex())
        server = environment.start_program("kubectl", "exec", "-n", environment.namespace, pod_of(TASK), "--", *program)
        server.until_says("listens")
        node.run(process.node, _REDIRECT, process.id, PORT)
        return environment.start("submit", *words, name, script, "none").end(PATIENCE)

    return run


def endless_errors(environment: KubeEnvironment) -> Ended:
    """Run `stacks` once the pod of the task has a Python that writes errors without an end."""
    name = environment.cluster()
    process = environment.process(TASK)
    environment.at_end(lambda: removals.delete(TASK, **NOW)(environment))
    node.run(process.node, _ENDLESS_ERRORS, process.id)
    ended = environment.start("stacks", name, TASK.partition("/")[0]).end(PATIENCE)
    return Ended(ended.seconds, ended.code, "", ended.out + ended.err)  # the table has the reason


def rows() -> Iterator[Row]:
    yield Row(
        fault=f"python3 in the pod of {TASK} writes errors without an end", when="before `stacks`",
        run=endless_errors, words=(TASK, "does not end"), limit=5 * VERDICT,
    )  # fmt: skip
    for number, (what, data) in enumerate(SENDS.items()):
        for flags in ((), ("--here",)):
            yield Row(
                fault=f"pod of {TASK} sends {what}", when=f"before `{' '.join(('submit', *flags))}`",
                run=hostile(data, *flags), code=3, words=(TASK, "not answer"), limit=3 * VERDICT,
                thorough=bool(number or flags),
            )  # fmt: skip
