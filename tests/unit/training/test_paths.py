"""`tfk8s.path`: the files of a volume on this machine and in pods."""

from __future__ import annotations

import json

import pytest

import tfk8s


@pytest.mark.parametrize(
    ("path", "here"),
    [
        ("/ckpt", "/home/ann/ckpt"),
        ("/ckpt/", "/home/ann/ckpt"),
        ("/ckpt/run-1/model", "/home/ann/ckpt/run-1/model"),
        ("/ckpt/data/a", "/home/ann/data/a"),
        ("/ckpts", "/ckpts"),
        ("/other", "/other"),
    ],
)
def test_path_is_in_the_folder_of_its_volume(monkeypatch: pytest.MonkeyPatch, path: str, here: str) -> None:
    monkeypatch.delenv("TFK8S_FOLDERS", raising=False)
    assert tfk8s.path(path) == path
    folders = {"/ckpt": "/home/ann/ckpt", "/ckpt/data": "/home/ann/data"}
    monkeypatch.setenv("TFK8S_FOLDERS", json.dumps(folders))
    assert tfk8s.path(path) == here
