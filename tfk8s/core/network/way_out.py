"""The ways in which the processes of a local cluster reach other networks."""

from __future__ import annotations

import enum

from tfk8s.core.network.reach import FIELD


class Way(enum.StrEnum):
    """One way. Its value travels in the supervisor's answers."""

    MACHINE = "machine"
    UNKEPT = "unkept"
    SLIRP = "slirp4netns"
    PASTA = "pasta"
    PROXY = "proxy"
    LIST = "list"
    CLOSED = "closed"
    BROKEN = "broken"

    @property
    def text(self) -> str:
        """The way in words, for users."""
        return _TEXTS[self]

    @property
    def is_program(self) -> bool:
        """True if a program of this name gives the network a way out, for all protocols."""
        return self in (Way.SLIRP, Way.PASTA)

    @property
    def cause(self) -> str:
        """Why direct connections to other networks fail, for users; only a way with the proxy has a cause."""
        return _CAUSES[self]

    @property
    def has_proxy(self) -> bool:
        """True if processes get variables with the address of the supervisor's proxy."""
        return self in (Way.PROXY, Way.LIST, Way.CLOSED)


_TEXTS = {
    Way.MACHINE: "this machine's own network",
    Way.UNKEPT: "this machine's own network, where nothing keeps network.allow_to of the job file",
    Way.SLIRP: "through slirp4netns",
    Way.PASTA: "through pasta",
    Way.PROXY: "by an HTTP(S) proxy of the supervisor: HTTP and HTTPS alone",
    Way.LIST: "by an HTTP(S) proxy of the supervisor: HTTP and HTTPS alone, to what network.allow_to has",
    Way.CLOSED: "closed by network.allow_to in the job file",
    Way.BROKEN: "closed: its process has ended; supervisor.log may say why",
}
_CAUSES = {
    Way.PROXY: "HTTP and HTTPS alone pass, by the proxy; slirp4netns or pasta, installed, would pass all",
    Way.LIST: f"{FIELD} lets HTTP and HTTPS alone pass, by the proxy",
    Way.CLOSED: f"{FIELD} is empty",
}
