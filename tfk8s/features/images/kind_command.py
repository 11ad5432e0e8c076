"""Commands for clusters of kind: up, down."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once
from tfk8s.features.images import here as images
from tfk8s.features.images import kind as clusters
from tfk8s.features.images.command import CLUSTER, KindName


def kind() -> None:
    """Create and delete kind clusters for trying tfk8s."""


def up(
    name: KindName = CLUSTER,
    gpus: Annotated[int, options.number_option("--gpus", "N", 0, "Let each node pretend to have N GPUs.")] = 0,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Load this image; default: tfk8s/cpu, if it was built."),
    ] = None,
) -> None:  # fmt: skip
    """Create a kind cluster for trying tfk8s, on Docker or podman.

    The cluster's network enforces NetworkPolicy. KIND_NODE_IMAGE replaces kind's node image.
    KIND_EXPERIMENTAL_PROVIDER chooses between Docker and podman.

    Examples:
        tfk8s kind up
        tfk8s kind up --name test --gpus 8
    """
    chosen = images.named(image) if image else images.built("cpu")
    with Once():
        clusters.up(name, gpus=gpus, image=chosen)
    say(f'kind cluster "{name}" is up')
    for line in clusters.advice(name, chosen):
        note(line)


def down(name: KindName = CLUSTER) -> None:
    """Delete a kind cluster, and everything that runs in it.

    Examples:
        tfk8s kind down
        tfk8s kind down --name test
    """
    clusters.down(name)
    say(f'kind cluster "{name}" is down')
