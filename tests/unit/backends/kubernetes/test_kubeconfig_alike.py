"""The official client understands kubeconfigs alike. Where it differs from client-go, that one is right, and followed:

- it takes the current context of the last file that names one, and client-go that of the first;
- it looks for a user's relative certificates beside the file of the cluster;
- it prefers a token to the token file beside it, sends what is in one with its line end, and sends both in the clear;
- it leaves out `as`, and takes what contradicts itself, such as a token beside a password.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tfk8s.backends.kubernetes.access import Access, User, credentials, kubeconfig

NAMES = st.sampled_from(["a", "b", "é 2"])
CONTENTS = st.binary(min_size=1, max_size=8).map(lambda data: b"-" + data)


def fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name.replace("_", "-"): value for name, value in optional.items()})


def joined(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


def content(key: str, *places: str) -> st.SearchStrategy[dict[str, Any]]:
    """A field's content as data, in a file at one of some places, or both: a tuple is to become a file."""
    file = st.tuples(st.sampled_from(places), CONTENTS)
    data = CONTENTS.map(lambda data: base64.b64encode(data).decode())
    either = st.one_of(st.fixed_dictionaries({key: file}), st.fixed_dictionaries({f"{key}-data": data}))
    return st.one_of(either, st.fixed_dictionaries({key: file, f"{key}-data": data}))


SERVERS = st.sampled_from(["https://h:6443", "https://10.0.0.1", "https://[::1]:6443/", "https://h/k8s/clusters/c-1"])
CLUSTERS = joined(
    st.fixed_dictionaries({"server": SERVERS}),
    st.one_of(
        st.just({}),
        content("certificate-authority", "", "../", "sub/", "/"),
        st.just({"insecure-skip-tls-verify": True}),
    ),
    fields(tls_server_name=st.just("api")),
)
WORDS = st.from_regex(r"[a-zA-Z0-9_.-]{1,9}", fullmatch=True)
USERS = joined(
    st.one_of(st.just({}), joined(content("client-certificate", "/"), content("client-key", "/"))),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"token": WORDS}),
        st.fixed_dictionaries({"tokenFile": st.tuples(st.sampled_from(["", "sub/"]), WORDS.map(str.encode))}),
        st.fixed_dictionaries({"username": WORDS, "password": WORDS}),
    ),
)
CONTEXTS = joined(
    st.fixed_dictionaries({"cluster": st.just("a"), "user": NAMES}), fields(namespace=st.sampled_from(["n", "m"]))
)


def entries(kind: str, values: st.SearchStrategy[Any], least: int) -> st.SearchStrategy[list[Any]]:
    named = st.dictionaries(NAMES, values, min_size=least, max_size=3)
    return named.map(lambda found: [{"name": name, kind: value} for name, value in found.items()])


FILES = st.lists(
    st.fixed_dictionaries({
        "contexts": entries("context", CONTEXTS, 0),
        "clusters": entries("cluster", CLUSTERS, 0),
        "users": entries("user", USERS, 0),
    }),
    max_size=2,
)  # fmt: skip
WHOLE = st.fixed_dictionaries({
    "contexts": entries("context", CONTEXTS, 1),
    "clusters": CLUSTERS.map(lambda cluster: [{"name": "a", "cluster": cluster}]),
    "users": st.tuples(*[USERS] * 3).map(
        lambda users: [{"name": name, "user": user} for name, user in zip(["a", "b", "é 2"], users, strict=True)]
    ),
})  # fmt: skip


def write(folder: Path, config: dict[str, Any]) -> Path:
    """Write a kubeconfig and the files that are in it; return its path."""
    (folder / "sub").mkdir(parents=True)
    number = 0
    for kind in ("cluster", "user"):
        for one in config[f"{kind}s"]:
            for key, value in one[kind].items():
                if isinstance(value, tuple):
                    number += 1
                    place, data = value
                    path = f"{folder}/far{number}" if place == "/" else f"{place}{folder.name}{number}"
                    (folder / path).write_bytes(data)
                    one[kind][key] = path
    (folder / "config").write_text(yaml.safe_dump(config, allow_unicode=True))
    return folder / "config"


def official(files: str, context: str) -> dict[str, object]:
    found = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(config_file=files, context=context, client_configuration=found)
    auth = found.auth_settings().get("BearerToken")
    return {
        "url": found.host,
        "authority": Path(found.ssl_ca_cert).read_bytes() if found.ssl_ca_cert else b"",
        "insecure": not found.verify_ssl,
        "name": found.tls_server_name or "",
        "certificate": Path(found.cert_file).read_bytes() if found.cert_file else b"",
        "key": Path(found.key_file).read_bytes() if found.key_file else b"",
        "authorization": (auth or {}).get("value") or "",
    }


def authorization(user: User) -> str:
    if user.token_file is not None:
        return credentials.TokenFile(user, user.token_file).get().authorization
    found = credentials.fixed(user)
    return found.get().authorization if found else ""


def ours(access: Access) -> dict[str, object]:
    pair = access.user.key_pair
    return {
        "url": access.server.url,
        "authority": access.server.authority,
        "insecure": access.server.insecure,
        "name": access.server.name,
        "certificate": pair.certificate if pair else b"",
        "key": pair.key if pair else b"",
        "authorization": authorization(access.user),
    }


@settings(max_examples=20)
@given(FILES, WHOLE, st.randoms())
def test_both_understand_a_kubeconfig_alike(files: list[dict[str, Any]], whole: dict[str, Any], random: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder) / str(number), one) for number, one in enumerate([*files, whole])]
        random.shuffle(paths)
        places = os.pathsep.join(map(str, paths))
        before = os.environ.get("KUBECONFIG")
        os.environ["KUBECONFIG"] = places
        try:
            context = random.choice([one["name"] for config in [*files, whole] for one in config["contexts"]])
            assert ours(kubeconfig.load(context)) == official(places, context)
        finally:
            os.environ.pop("KUBECONFIG") if before is None else os.environ.update(KUBECONFIG=before)
