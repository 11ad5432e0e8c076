"""A builder of job files, generated job files (with problems or without), and a job file with every key."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from hypothesis import strategies as st

from tfk8s.core.spec import Job, JobFile

# Texts that some YAML readers take for numbers, booleans, dates or nothing.
AMBIGUOUS_TEXTS = [
    "1e-4", "1E5", ".5", "5.", "1_000", "1_0.5", "0x1f", "0X1F", "0o17", "0O17", "0b1", "0o7", "0x1F", "007", "08",
    "017", "+1", "-.5", "-_1", "12:30:45", "1:20", "2026-11-21", "2001-1-2", "2001-12-14t21:59:43.10-05:00", "y", "Y",
    "n", "N", "yes", "No", "on", "OFF", "true", "null", "~", "=", "<<", ".inf", "-.Inf", ".nan", "4711", "2.21.0",
]  # fmt: skip

EVERYTHING = f"""
apiVersion: tfk8s.dev/v1
name: everything
image: registry.example/tensorflow@sha256:{"0" * 64}
master: chief
port: 2300
image_pull_secrets: [login]
env: {{A: a, C: {{config_map: settings, key: c}}}}
labels: {{team: w, unit: z}}
annotations: {{mesh: "off"}}
volumes:
- {{path: /data, claim: data, read_only: true}}
- {{path: /ckpt, claim: ckpt, create: 100Gi, storage_class: fast, access: ReadWriteMany, folder: ./ckpt}}
queue: gold
gang: false
avoid: [gpu-node-7, gpu-node-8.example]
pod: {{hostAliases: [{{ip: 10.0.0.1, hostnames: [store]}}]}}
network:
  allow_from: [{{pods: {{app: notebook}}}}, {{namespace: tools}}]
  allow_to: [{{cidr: 10.0.0.0/8, ports: [443]}}]
metrics: {{from: [{{namespace: monitoring, pods: {{app: prometheus}}}}, {{cidr: 10.1.0.0/16}}]}}
history: {{bucket: "s3://team/past", endpoint: "http://minio.example:9000", secret: past-keys, logs: true}}
security: {{user: 12345, group: 12345, service_account: me}}
ttl: 60
max_duration: 8h
idle: 30m
grace: 30
drain: idle
warm: true
script: {{cpu: 2, memory: 4Gi, shm: 1Gi, ephemeral_storage: 20Gi, gpus: 1}}
jobs:
  chief: 1
  evaluator: 1
  input: {{kind: data, tasks: 3, gpus: 1, port: 2500}}
  My_ps: {{tasks: 2, cpu: 2, memory: 4Gi, labels: {{team: x}}, annotations: {{note: text}}, port: 2400}}
  worker:
    tasks: 4
    gpus: 2
    gpus_optional: true
    accelerator: nvidia-l4
    spot: true
    priority_class: high
    node_selector: {{zone: a}}
    tolerations: [{{key: k, operator: Exists}}]
    env: {{B: b, KEY: {{secret: keys, key: api.key}}}}
    shm: 8Gi
    topology: {{pack: zone, required: true}}
    pod:
      hostAliases: [{{ip: 10.0.0.1, hostnames: [cache]}}]
      volumes: [{{name: model, emptyDir: {{}}}}]
      containers:
        - {{name: server, volumeMounts: [{{name: model, mountPath: /model}}], resources: {{limits: {{rdma/hca: '1'}}}}}}
        - name: proxy
          image: registry.example/proxy@sha256:{"0" * 64}
          ports: [{{containerPort: 9100}}]
          readinessProbe: {{tcpSocket: {{port: 9100}}}}
          resources:
            requests: {{cpu: 50m, memory: 64Mi, ephemeral-storage: 64Mi}}
            limits: {{cpu: 50m, memory: 64Mi, ephemeral-storage: 64Mi}}
    preload: [tensorflow_text]
    volumes:
      - {{path: /cache, size: 1Gi}}
      - {{path: /keys, secret: keys}}
      - {{path: /map, config_map: map}}
      - {{path: /models, bucket: "gs://models/mnist/v=1/", read_only: true}}
"""

# Programs beside a server, with every rule of a run.
PROGRAMS = """
apiVersion: tfk8s.dev/v1
name: programs
image: tf:1
max_duration: 8h
idle: 30m
grace: 45s
queue: gold
metrics: true
history: {claim: past}
pod: {hostAliases: [{ip: 10.0.0.1, hostnames: [store]}]}
run: {success: worker/1, restart_on: never, max_restarts: 7, restart_scope: task, timeout: 2h}
jobs:
  My_worker: {program: [python3, -m, trainer], gpus: 1}
  evaluator: {program: [/app/evaluate.py, "$(HOME)", "a$$b"]}
  old: {program: [python3, -u, /app/old.py], tf1: true}
  ps: {port: 2400}
  worker: {tasks: 3, program: [python3, -c, "print(1)"], port: 2300, env: {PYTHONUNBUFFERED: ""}, pod: {nodeName: a}}
"""

# Every field of a pod that belongs to tasks alone.
OF_TASKS = """
apiVersion: tfk8s.dev/v1
name: demo
image: tf:1
idle: 30m
labels: {kueue.x-k8s.io/pod-group-name: demo}
annotations: {kueue.x-k8s.io/pod-group-total-count: "1"}
pod:
  nodeName: node-1
  resources: {requests: {cpu: "8"}}
  resourceClaims: [{name: nic, resourceClaimTemplateName: nic}]
  schedulingGates: [{name: example.com/ready}]
  readinessGates: [{conditionType: example.com/ready}]
  affinity: {podAffinity: {}, nodeAffinity: {a: 1}}
  topologySpreadConstraints: [{topologyKey: zone}]
  initContainers: [{name: download, image: "d:1", resources: {claims: [{name: nic}], limits: {cpu: "1"}}}]
  dnsPolicy: Default
jobs: {worker: 1}
"""

_FIELDS = {field.name for field in dataclasses.fields(JobFile)}


def job_file(name: str = "mnist", *jobs: Job, **more: Any) -> JobFile:
    """Return a job file whose first job is the master.

    Args:
        name: of the cluster.
        *jobs: its jobs; by default a chief and two workers.
        **more: fields of JobFile, and numbers of tasks by the job's name: `worker=2`.
    """
    settings = {key: value for key, value in more.items() if key in _FIELDS}
    counts = {key: value for key, value in more.items() if key not in _FIELDS}
    if not jobs and not counts:
        counts = {"chief": 1, "worker": 2}
    jobs += tuple(Job(name=job, tasks=tasks) for job, tasks in counts.items())
    return JobFile(**{"name": name, "jobs": jobs, "master": jobs[0].name, **settings})


_JUNK = [True, 0.5, -1, "", [], {}, ["x"], {"x": 1}, 70000, "A b", "x" * 70]
_HARD_TEXTS = [
    "", "é ", "1", "1e3", "null", "yes", "$(HOME)", "a$$b", "{{ .Values }}", "a: b #c", "'\"\\", "a\n b\n", "😀",
    "\x7f\x85\ufeff\u2028",
]  # fmt: skip
_SOURCES = [
    {"claim": "a"}, {"secret": "b"}, {"config_map": "c"}, {"size": "1Gi"}, {"size": 1000000000},
    {"claim": "d", "create": "1e9"}, {"claim": "e", "create": 1 << 30, "access": "ReadWriteMany"},
    {"claim": "f", "create": "2Ti", "storage_class": "on", "folder": "f", "local_mount": False},
    {"bucket": "gs://a.b_c"}, {"bucket": "gs://abc/no/x=1/"},
]  # fmt: skip
_ENV_SOURCES = [{"secret": "a", "key": "b.c"}, {"config_map": "1e1", "key": "on"}]
_BAD_ENV_SOURCES = [
    {"secret": "a"},
    {"key": "a"},
    {"secret": "a", "config_map": "b", "key": "c"},
    {"secret": "a", "key": "/"},
]
_TOPOLOGIES = [
    {"spread": "zone"}, {"spread": "host", "required": True}, {"pack": "host"}, {"pack": "example.com/rack"},
    {"pack": "zone", "required": True},
]  # fmt: skip
_BAD_TOPOLOGIES = [{}, {"spread": "zone", "pack": "zone"}, {"pack": "rack"}, {"required": True}]
_BAD_SOURCES = [
    {"claim": "A"}, {"claim": "a", "size": "1Gi"}, {"size": "x"}, {"claim": "a", "create": 1}, {"create": "1Gi"},
    {"claim": "a", "access": "ReadWriteMany"}, {"claim": "a", "storage_class": "b"}, {"bucket": "s3://a"},
    {"claim": "a", "create": "1Gi", "access": "ReadOnlyMany"}, {"claim": "a", "local_mount": True}, {"folder": ""},
]  # fmt: skip
_PODS = [
    {},
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "runtimeClassName": "gvisor"},
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}, {"ip": "10.0.0.2"}], "dnsConfig": {"options": [{}]}},
    {"tolerations": [{"key": "a", "value": "b"}, {"operator": "Exists"}], "imagePullSecrets": [{"name": "c"}]},
    {"nodeSelector": {"x": "1e3"}, "affinity": {"nodeAffinity": {"a": [1, 2.5, True, "no"]}}},
    {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, "x": {"y": [[], {}]}},
    {"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 2}]},
    {"securityContext": {"supplementalGroups": [2000000], "seccompProfile": {"type": "Localhost"}}},
    {"nodeName": "n", "resources": {"limits": {"cpu": "1"}}, "schedulingGates": [{"name": "g"}]},
    {"volumes": [{"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": {}}]}}]},
    {"volumes": [{"name": "m", "emptyDir": {}}], "initContainers": [{"name": "i", "image": "a", "env": []}]},
    {"containers": [{"name": "p", "ports": [{"containerPort": 443}, {"containerPort": 444}]}, {"name": "q"}]},
    {"containers": [{"name": "p", "ports": [{"containerPort": 2223}]}, {"name": "q", "ports": []}]},
    {"initContainers": [{"name": "p", "image": "a", "ports": [{"containerPort": n} for n in (10001, 65534)]}]},
    {"containers": [{"name": "p", "ports": [{"containerPort": 80, "name": "x"}], "securityContext": {"runAsUser": 7}}]},
    {"containers": [{"name": "server", "resources": {"limits": {"x/y": 1}}, "envFrom": [{"secretRef": {}}]}]},
    {"containers": [{"name": "server", "volumeMounts": [{"mountPath": "/a", "subPath": "s"}, {"mountPath": "/n"}]}]},
    {"containers": [{"name": "server", "env": [{"name": "OMP", "value": "9"}, {"name": "Z", "value": "\x7f\u2028"}]}]},
]  # fmt: skip
_BAD_PODS = [
    {"containers": [{"name": "a"}, {"name": "a"}]}, {"volumes": [{"name": "a"}, {"name": "a"}]},
    {"nodeSelector": ["a"]}, {"affinity": "a"}, {"tolerations": [{"key": 3}]}, {"$patch": "replace"},
    {"dnsConfig": {"options": [{"$retainKeys": ["a"]}]}},
    {"hostNetwork": False}, {"spec": {}}, {"containers": [{}]}, {"containers": [{"name": "server", "args": []}]},
    {"containers": [{"name": "script"}]}, {"containers": {"name": "p"}}, {"initContainers": [{"name": "server"}]},
    {"volumes": [{"name": "volume-7"}]}, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    {"containers": [{"name": "server", "env": [{"name": "PYTHONPATH"}]}]},
    {"containers": [{"name": "server", "volumeMounts": [{"mountPath": "/tmp"}]}]},
    {"containers": [{"name": "server", "securityContext": {"privileged": True}}]},
    {"securityContext": {"fsGroup": 5}}, {"securityContext": {"runAsNonRoot": False}},
]  # fmt: skip
_PROGRAMS = [["python3", "-m", "a"], ["/a.py", "--flag", "$(HOME) a$$b"], ["sh", "-c", "", "é\n", "1e3"]]
_SCRIPTS = [["train.py"], ["a/b.py", "x"]]
_TOLERATIONS = [
    {"operator": "Exists"},
    {"key": "a", "value": "b"},
    {"key": "a", "operator": "Exists", "value": ""},
    {"key": "a", "effect": "NoExecute", "tolerationSeconds": 3000000},
]  # fmt: skip
_BAD_TOLERATIONS = [
    {"operator": "exists"}, {"key": "a b"}, {"key": "a", "effect": "x"}, {"key": "a", "tolerationSeconds": 5},
    {"key": "a", "operator": "Exists", "value": "b"}, {"effect": "NoExecute"},
]  # fmt: skip


def as_json(data: object) -> str:
    """Return JSON that is also YAML, with escapes for characters that YAML does not allow."""
    text = json.dumps(data, ensure_ascii=False)
    return re.sub("[^ -~\xa0-\u2027\u202a-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def job_files(*, wrong: bool = False) -> st.SearchStrategy[Any]:
    """Return a strategy for job files as data, some of them invalid if `wrong`."""
    return _Parts(wrong=wrong).files()


class _Parts:
    def __init__(self, *, wrong: bool) -> None:
        self._wrong = wrong

    def mostly(self, good: st.SearchStrategy[Any], bad: list[Any]) -> st.SearchStrategy[Any]:
        """Return valid values and, if `wrong`, now and then an invalid value."""
        if not self._wrong:
            return good
        return st.integers(0, 15).flatmap(lambda number: good if number else st.sampled_from(bad))

    def pick(self, good: list[Any], bad: list[Any]) -> st.SearchStrategy[Any]:
        return self.mostly(st.sampled_from(good), [*bad, *_JUNK])

    def some(self, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        """Return mappings with some of the keys."""
        return self.mostly(st.fixed_dictionaries({}, optional=keys), [{"unknown": 1}, *_JUNK])

    def several(self, values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(values, max_size=2)

    def dns(self) -> st.SearchStrategy[Any]:
        return self.pick(["a", "team-a", "b2", "on", "1e1"], ["-", "A", "a_b", "a" * 254])

    def port(self) -> st.SearchStrategy[Any]:
        return self.pick([1, 443, 2222, 10000, 65535], [0, 65536, "80"])

    def duration(self) -> st.SearchStrategy[Any]:
        return self.pick(["2h", 5, 1000000, "9999d", "90s"], ["h", 0, "05s", "10000d"])

    def size(self) -> st.SearchStrategy[Any]:
        return self.pick(
            ["4Gi", "1e9", 4 << 30, "512M", 1 << 20, 10**15 - 1, "0.5Gi"], ["4GB", "-1", 0, "4", "9999999999m"]
        )

    def env(self) -> st.SearchStrategy[Any]:
        text = self.pick(_HARD_TEXTS, [1]) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
        value = text | self.pick(_ENV_SOURCES, _BAD_ENV_SOURCES)
        some = self.some(OMP=value, b_c=text, y=value, PYTHONPATH=text, HOME=value, CUDA_VISIBLE_DEVICES=value)
        return self.mostly(some, [{"TFK8S_X": "a"}, {"1a": "b"}, {"PYTHONPATH": _ENV_SOURCES[0]}])

    def labels(self) -> st.SearchStrategy[Any]:
        some = self.some(b_c=self.dns(), **{"example.com/x": self.dns(), "cloud.google.com/gke-spot": st.just("false")})
        return self.mostly(some, [{"tfk8s.dev/x": "a"}, {"a b": "b"}])

    def source(self) -> st.SearchStrategy[Any]:
        pods = self.pick(
            [{"namespace": "a"}, {"pods": {"no": "yes"}}, {"namespace": "on", "pods": {"b": ""}}],
            [{"pods": {}}, {"pods": {"a": "b c"}}],
        )
        return pods | self.pick(
            [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, {"cidr": "::/0"}],
            [{"cidr": "x"}, {"cidr": "::/0", "pods": {}}, {"cidr": "::/0", "except": []}, {"except": ["10.0.0.0/8"]}],
        )

    def destination(self) -> st.SearchStrategy[Any]:
        good = [{"cidr": "10.0.0.0/8", "ports": [65535, 443]}, {"namespace": "a", "ports": [1]}]
        return self.source() | self.pick(good, [{"namespace": "a", "ports": []}, {"ports": [1]}])

    def volume(self) -> st.SearchStrategy[Any]:
        paths = self.pick(
            ["/a", "/b/", "/c//./d", "/dev//shm", "/tmp/x y", "/é"], ["c", "/d:e", "/tmp/.", "/opt//tfk8s/x", "/a/.."]
        )
        sources = self.mostly(st.sampled_from(_SOURCES), _BAD_SOURCES)
        more = st.just({}) | st.builds(dict, read_only=self.pick([True, False], ["yes"]))
        return st.builds(lambda path, source, more: {"path": path} | source | more, paths, sources, more)

    def job(self) -> st.SearchStrategy[Any]:
        some = self.job_with(preload=self.several(self.pick(["a", "a.b", "on"], ["a-b"])))
        program = self.pick(_PROGRAMS, [*_SCRIPTS, [], [""], "a.py", [1]])
        plain = st.builds(lambda words: {"program": words}, program)
        tf1 = self.pick(
            [{"program": _PROGRAMS[0], "tf1": True}], [{"program": _PROGRAMS[1], "tf1": True}, {"tf1": True}]
        )

        def both(job: dict[str, Any], more: Any) -> Any:
            return {**job, **more} if isinstance(more, dict) else more

        programs = self.job_with().flatmap(
            lambda job: st.builds(lambda more: both(job, more), plain | tf1) if isinstance(job, dict) else st.just(job)
        )
        data = self.job_with().map(lambda job: {"tasks": 2, **job, "kind": "data"} if isinstance(job, dict) else job)
        with_accelerator = {"accelerator": "nvidia-l4", "gpus": 2}
        return some | programs | data | some.map(lambda job: job | with_accelerator if isinstance(job, dict) else job)

    def job_with(self, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return self.some(
            tasks=self.pick([1, 2, 10_000], [0, 10_001, "2"]),
            image=self.pick(["a/b:c", "r.example:5000/a__b@sha256:" + "0" * 64], ["A", "x@y"]),
            cpu=self.pick([1, 0.5, 2.25, 0.001, 1000000, "500m", "0.1", "1e1"], ["x", -1]),
            memory=self.size(),
            shm=self.size(),
            gpus=self.pick([0, 1, 8, 1000], [0.5]),
            gpus_optional=self.pick([True, False], [1]),
            gpu_resource=self.pick(["amd.com/gpu"], ["gpu"]),
            node_selector=self.labels(),
            tolerations=self.several(self.pick(_TOLERATIONS, _BAD_TOLERATIONS)),
            env=self.env(),
            labels=self.labels(),
            annotations=self.labels() | st.builds(dict, note=st.sampled_from(_HARD_TEXTS)),
            volumes=self.several(self.volume()),
            **more,
            port=self.port(),
            spot=self.pick([True, False, "gke", "karpenter", "aks", "eks"], ["true", "aws"]),
            priority_class=self.dns(),
            topology=self.pick(_TOPOLOGIES, _BAD_TOPOLOGIES),
            pod=self.pick(_PODS, _BAD_PODS),
        )

    def jobs(self) -> st.SearchStrategy[Any]:
        names = st.sampled_from(["worker", "chief", "master", "ps", "evaluator", "My_Job", "worker_", "Worker", "y"])
        any_name = st.from_regex("[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True)
        jobs = st.dictionaries(names | any_name, self.job() | self.pick([1, 10_000], [0]), min_size=1, max_size=5)
        addresses = self.pick([["a:1"], ["10.0.0.5:65535", "[::1]:80"]], [["b:0"], ["c:65536"], ["d"], ["e:1 "], []])
        if self._wrong:
            jobs |= st.dictionaries(st.sampled_from(["a", "b_"]), addresses, min_size=1, max_size=1)
        return self.mostly(jobs, [{}, {"a-b": 1}, {"évaluator": 1}, {"a" * 64: 1}, *_JUNK])

    def run(self) -> st.SearchStrategy[Any]:
        return self.some(
            success=self.pick(["PROGRAM", "PROGRAM/0", "PROGRAM/1"], ["a/b", "worker/", "/0", "worker/00", ""]),
            restart_on=self.pick(["exit-code", "failure", "never", [42, 143]], ["always", [], [0], [256], 42]),
            max_restarts=self.pick([0, 1, 1000], [-1, 1001]),
            restart_scope=self.pick(["task", "job", "cluster"], ["pod"]),
            timeout=self.duration(),
        )

    def files(self) -> st.SearchStrategy[Any]:
        rest = self.some(
            namespace=self.dns(),
            port=self.port(),
            env=self.env(),
            image_pull_secrets=self.several(self.dns()),
            labels=self.labels(),
            annotations=self.labels(),
            volumes=self.several(self.volume()),
            queue=self.dns(),
            gang=self.pick([True, False], ["yes"]),
            network=self.some(allow_from=self.several(self.source()), allow_to=self.several(self.destination())),
            security=self.some(
                user=self.pick([1, 2**31 - 1], [0]), group=self.pick([1], [0]), service_account=self.dns()
            ),
            pod=self.pick(_PODS, _BAD_PODS),
            run=self.run(),
            warm=self.pick([True, False], ["yes"]),
            script=self.some(
                cpu=self.pick([1, 0.5, 2.0, "500m"], ["x", -1]),
                memory=self.size(),
                shm=self.size(),
                ephemeral_storage=self.size(),
                gpus=self.pick([0, 1], [0.5]),
            ),
            drain=self.pick(["block", "allow", "idle"], ["never"]),
            grace=self.duration(),
            **{key: self.duration() for key in ("ttl", "max_duration", "idle")},
        )
        heads = self.mostly(
            st.builds(
                lambda name, image: {"apiVersion": "tfk8s.dev/v1", "name": name, "image": image},
                st.sampled_from(["a", "y", "null", "e1", "mnist-2"]),
                self.pick(["a", "r.example:5000/a/b:1.0"], ["A"]),
            ),
            [{"apiVersion": "v1"}],
        )
        masters = st.just({}) | st.sampled_from(["first", "last"])
        return st.builds(_file, heads, self.jobs(), rest, masters)


def _file(head: dict[str, Any], jobs: Any, rest: Any, master: Any) -> Any:
    if not isinstance(jobs, dict) or not isinstance(rest, dict):
        return {**head, "jobs": jobs, **rest} if isinstance(rest, dict) else rest
    jobs = _with_one_service(jobs)
    programs = [name for name, job in jobs.items() if isinstance(job, dict) and "program" in job]
    names = [name for name in jobs if name not in ("evaluator", *programs, *_services(jobs))]
    chosen = {"master": names[0 if master == "first" else -1]} if names and master else {}
    if isinstance(rest.get("run"), dict) and isinstance(success := rest["run"].get("success"), str) and programs:
        rest["run"]["success"] = success.replace("PROGRAM", programs[0])
    if not programs:
        rest.pop("run", None)
    return {**head, "jobs": jobs, **chosen, **rest}


def _services(jobs: dict[str, Any]) -> list[str]:
    """Return the jobs that run tf.data's service."""
    return [name for name, job in jobs.items() if isinstance(job, dict) and "kind" in job]


def _with_one_service(jobs: dict[str, Any]) -> dict[str, Any]:
    """Return jobs of which at most one runs tf.data's service, and has tasks enough; none if no other job is there."""
    services = _services(jobs)
    others = [name for name in jobs if name != "evaluator" and name not in services]
    for name in services[:1] if others else []:
        if jobs[name]["tasks"] == 1:
            jobs = {**jobs, name: {**jobs[name], "tasks": 2}}
    for name in services[1 if others else 0 :]:
        jobs = {**jobs, name: {key: value for key, value in jobs[name].items() if key != "kind"}}
    return jobs
