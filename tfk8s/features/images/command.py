"""Commands for container images: build, load, push."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.completion import one_of
from tfk8s.cli.output import note, say
from tfk8s.features.images import here as images
from tfk8s.features.images import kind

CLUSTER = "tfk8s"

_KINDS = one_of("cpu", "gpu", "server")

Image = Annotated[str, options.argument("KIND|IMAGE", "cpu, gpu or server, or any image's name.", _KINDS)]

KindName = Annotated[
    str, typer.Option("--name", metavar="NAME", show_default=False, help=f"The kind cluster's; default: {CLUSTER}.")
]


def image() -> None:
    """Build images with TensorFlow, load them into kind, push them."""


def build(
    kind: Annotated[str, options.argument("KIND", "cpu, gpu or server; default: cpu.", _KINDS)] = "cpu",
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="NAME", help="The image's name; default: tfk8s/KIND:VERSIONS.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="IMAGE", help="Build on this image with Python 3.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="NETWORK", help="The network of the build steps; host means this machine's."),
    ] = None,
) -> None:
    """Build an image with TensorFlow, and test it.

    cpu and gpu run tasks and session scripts. server runs tasks on CPUs only, and is the smallest. The test runs the
    image with the restrictions of a pod.

    Examples:
        tfk8s image build
        tfk8s image build server --tag registry.example/team/tensorflow-server:2.21.0
    """
    name = tag or images.reference(kind)
    engine = images.Engine()
    engine.build(kind, name, base=base, network=network)
    note(engine.smoke_test(name))
    say(name)
    note(f"{engine.size(name) / 1e9:.2f} GB; for job files: image: {images.in_pods(name)}")


def load(image: Image = "cpu", name: KindName = CLUSTER) -> None:
    """Copy an image into the nodes of a kind cluster.

    Examples:
        tfk8s image load
        tfk8s image load server --name test
    """
    reference = images.named(image)
    kind.require(name)
    kind.load(name, reference, images.Engine())
    say(images.in_pods(reference))
    note("use this name in job files: image: …")


def push(
    image: Image,
    repository: Annotated[str, options.argument("REPOSITORY", "The target; without a tag, the image's tag is used.")],
) -> None:
    """Push an image to a registry.

    Uses Docker's login. Clusters pull the image from there: `image: REPOSITORY:TAG` in job files.

    Examples:
        tfk8s image push cpu registry.example/team/tensorflow
        tfk8s image push gpu europe-docker.pkg.dev/project/images/tensorflow-gpu
    """
    say(images.Engine().push(images.named(image), repository))
