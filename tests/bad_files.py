# ruff: noqa: E501, RUF001 - every problem is one line
"""Invalid job files, and all problems of each.

A line that starts with "= " is a job file after HEAD. A line that starts with "! " is a whole file. Both have Python's
escapes. The lines below list the problems: LINE:COLUMN+LENGTH CODE: MESSAGE [LABEL] -> HELP.
KEYS_OF_CLUSTER and KEYS_OF_JOB are the keys, in the order of the schema.
"""

from __future__ import annotations

from tfk8s.errors import Problem
from tfk8s.jobfile.schema import JOB, JOB_FILE

HEAD = "apiVersion: tfk8s.dev/v1\nname: mnist\n"

TABLE = r"""
# The file as a whole
! # nothing
  empty-file: the job file is empty -> create a job file with: tfk8s init
! ---
  empty-file: the job file is empty -> create a job file with: tfk8s init
! hello
  1:1+5 wrong-type: the job file can't be text [expected a mapping]
! - a
  1:1+1 wrong-type: the job file can't be a list [expected a mapping]
! name: a\x00b
  1:8+1 bad-character: U+0000 control character is not allowed in a job file
! name: a\x1b[31m
  1:8+1 bad-character: U+001B control character is not allowed in a job file
! name: a\u2028b
  1:8+1 bad-character: U+2028 LINE SEPARATOR is not allowed in a job file

# YAML
= jobs:\n\tworker: 1
  4:1+1 tab: a tab can't indent a line in YAML -> indent with spaces
= jobs:\n  worker:\n\t  tasks: 1
  5:1+1 tab: a tab can't indent a line in YAML -> indent with spaces
= jobs: {worker: 1
  3:7+1 syntax: this is not YAML: did not find expected ',' or '}' [this is never closed]
= image: a: b
  3:9+1 syntax: this is not YAML: mapping values are not allowed in this context -> put text that contains ": " in quotes
= image: 'abc\njobs: {}
  3:8+1 syntax: this is not YAML: found unexpected end of stream [this is never closed]
= jobs: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
  3:38+1 too-deep: a job file can have at most 32 levels
! a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]
  1:1+1 missing-key: "apiVersion" is missing [expected beside this] -> write apiVersion: tfk8s.dev/v1
  1:1+1 missing-key: "name" is missing [expected beside this] -> write name: mnist
  1:1+1 missing-key: "jobs" is missing [expected beside this] -> write jobs: {worker: 2}
  1:1+1 unknown-key: there is no key "a" here -> the keys here are KEYS_OF_CLUSTER
  1:4+4 anchor: YAML anchors are not allowed in a job file -> remove &a
  2:1+1 unknown-key: there is no key "b" here -> the keys here are KEYS_OF_CLUSTER
  2:4+4 anchor: YAML anchors are not allowed in a job file -> remove &b
  2:8+2 alias: YAML aliases are not allowed in a job file -> repeat the value instead of the alias
  2:12+2 alias: YAML aliases are not allowed in a job file -> repeat the value instead of the alias
  3:1+1 unknown-key: there is no key "c" here -> the keys here are KEYS_OF_CLUSTER
  3:5+2 alias: YAML aliases are not allowed in a job file -> repeat the value instead of the alias
  3:9+2 alias: YAML aliases are not allowed in a job file -> repeat the value instead of the alias
= defaults: &d {cpu: 1}\njobs:\n  worker:\n    <<: *d\n    tasks: 2
  3:1+8 unknown-key: there is no key "defaults" here -> the keys here are KEYS_OF_CLUSTER
  3:11+4 anchor: YAML anchors are not allowed in a job file -> remove &d
  6:5+2 merge-key: YAML merge keys are not allowed in a job file -> write out the merged keys
= jobs: {worker: !!int 2}
  3:16+7 tag: YAML tags are not allowed in a job file -> remove the word that starts with !
! %YAML 1.1\n---\napiVersion: tfk8s.dev/v1\nname: a\njobs: {a: 1}
  1:1+1 directive: YAML directives are not allowed in a job file -> remove the line that starts with %
= jobs: {worker: 1}\n---\nname: other
  4:1+3 second-document: a job file must be one YAML document [the second document starts here]
= jobs:\n  worker: 1\n  worker: 2
  5:3+6 duplicate-key: "worker" is given twice [it is also on line 4]
= jobs: {[a]: 1, worker: 1}
  3:8+1 bad-key: a key must be text -> if the key is meant as text, put it in quotes
! {[a]: 1, jobs: {worker: {env: 3}}}
  1:2+1 bad-key: a key must be text -> if the key is meant as text, put it in quotes
= image: {{ .Values.image }}\njobs: {worker: 1}
  3:9+1 bad-key: a key must be text -> if the key is meant as text, put it in quotes
= jobs: {worker:2}
  3:8+8 missing-space: "worker:2" has no space after the colon -> write worker: 2
= jobs: {y: 1}
  3:8+1 unclear: YAML parsers disagree on what "y" means -> write "y", in quotes

# Keys
= job: {worker: 1}
  3:1+3 unknown-key: there is no key "job" here -> write jobs
= jobs: {worker: {gpu: 1}}
  3:17+3 unknown-key: there is no key "gpu" here -> write gpus
= jobs: {worker: {xyzzy: 1}}
  3:17+5 unknown-key: there is no key "xyzzy" here -> the keys here are KEYS_OF_JOB
= jobs: {worker: {replicas: 1}}
  3:17+8 unknown-key: there is no key "replicas" here -> write tasks
= jobs: {worker: {apiVersion: tfk8s.dev/v1}}
  3:17+10 unknown-key: there is no key "apiVersion" here -> this key belongs at the top level, beside jobs
= gpus: 1\njobs: {worker: {queue: a}}
  3:1+4 unknown-key: there is no key "gpus" here -> this key belongs to a job, as in jobs: {worker: {gpus: …}}
  4:17+5 unknown-key: there is no key "queue" here -> this key belongs at the top level, beside jobs
= na\u200bme: x\njobs: {wor\u200bker: 1}
  3:1+5 unknown-key: there is no key "na\u200bme" here [the key contains U+200B ZERO WIDTH SPACE] -> write name
  4:8+7 bad-job-name: "wor\u200bker" is not a TensorFlow job name [U+200B ZERO WIDTH SPACE is not allowed; expected letters, digits and "_" only, starting with a letter] -> write worker
! master: worker
  1:1+6 missing-key: "apiVersion" is missing [expected beside this] -> write apiVersion: tfk8s.dev/v1
  1:1+6 missing-key: "name" is missing [expected beside this] -> write name: mnist
  1:1+6 missing-key: "jobs" is missing [expected beside this] -> write jobs: {worker: 2}
! apiVersion: v1\nname: a\njobs: {a: 1}
  1:13+2 bad-value: "apiVersion" can't be "v1" [expected tfk8s.dev/v1] -> write tfk8s.dev/v1

# Names
= jobs: {my-job: 2}
  3:8+6 bad-job-name: "my-job" is not a TensorFlow job name [letters, digits and "_" only, starting with a letter] -> write my_job
= jobs: {1abc: 1}
  3:8+4 bad-job-name: "1abc" is not a TensorFlow job name [letters, digits and "_" only, starting with a letter] -> write abc
= jobs: {a.b: 1}
  3:8+3 bad-job-name: "a.b" is not a TensorFlow job name [letters, digits and "_" only, starting with a letter] -> write a_b
= jobs: {"": 1}
  3:8+2 bad-job-name: "" is not a TensorFlow job name [letters, digits and "_" only, starting with a letter]
= jobs: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1}
  3:8+64 name-too-long: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has 64 characters [at most 63] -> remove 1 character
= jobs: {w\u043erker: 1}
  3:8+6 bad-job-name: "wоrker" is not a TensorFlow job name [U+043E CYRILLIC SMALL LETTER O is not allowed; expected letters, digits and "_" only, starting with a letter]
= jobs: {"wor\\u200bker": 1}
  3:8+14 bad-job-name: "wor\u200bker" is not a TensorFlow job name [U+200B ZERO WIDTH SPACE is not allowed; expected letters, digits and "_" only, starting with a letter] -> write worker
= avoid: [node]\npod: {affinity: {nodeAffinity: {}}}\njobs: {a: 1}
  4:18+12 avoid-replaced: a nodeAffinity would replace the rules of avoid [this replaces it] -> write the nodes into its matchFields instead
= jobs: {wOrKeR_pool: 1, WorkER_pOoL: 1}
  3:24+11 names-meet: jobs "wOrKeR_pool" and "WorkER_pOoL" would have the same name in Kubernetes [the name is "worker-pool-790a"] -> rename one of them
! apiVersion: tfk8s.dev/v1\nname: My_Cluster\njobs: {a: 1}
  2:7+10 bad-cluster-name: "My_Cluster" is not a cluster name [lower-case letters, digits and "-", starting with a letter] -> write my-cluster
! apiVersion: tfk8s.dev/v1\nname: 123\njobs: {a: 1}
  2:7+3 wrong-type: "name" can't be 123 [expected text] -> write "123", in quotes
! apiVersion: tfk8s.dev/v1\nname: 1st\njobs: {a: 1}
  2:7+3 bad-cluster-name: "1st" is not a cluster name [lower-case letters, digits and "-", starting with a letter] -> write st
! apiVersion: tfk8s.dev/v1\nname: recommendation-ranking-two-tower-production-candidate\njobs: {worker: 1, ps: 1}
  2:7+53 name-too-long: "recommendation-ranking-two-tower-production-candidate" is 8 characters too long [StatefulSet "recommendation-ranking-two-tower-production-candidate-worker" would have 60 characters; at most 52 are allowed] -> shorten it to 45 characters
! apiVersion: tfk8s.dev/v1\nname: recommendation-ranking-two\njobs: {production_candidate_large: 1}
  3:8+26 name-too-long: "production_candidate_large" is 6 characters too long [StatefulSet "recommendation-ranking-two-production-candidate-large-a9a9" would have 58 characters; at most 52 are allowed] -> shorten it to 20 characters
= jobs: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1}
  3:8+60 name-too-long: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" is 14 characters too long [StatefulSet "mnist-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" would have 66 characters; at most 52 are allowed] -> shorten it to 46 characters
= gang: true\nqueue: a\njobs: {worker: 1}
  3:7+4 gang-in-queue: gang: true has no effect in a queue [Kueue admits all tasks of a cluster together] -> remove gang, or queue
= gang: true\njobs: {ps: 1, worker: {priority_class: high}}
  3:7+4 gang-differs: jobs "ps" and "worker" differ in priority or scheduler [the scheduler starts no gang of such tasks] -> make them equal, or remove gang
= gang: true\njobs: {worker: ["a:1"]}
  3:1+4 needs-tasks: "gang" has no effect on servers that already run [job "worker" has addresses] -> remove gang
= namespace: A\nqueue: a_b\nimage: TF/Image\njobs: {worker: {priority_class: -x, gpu_resource: gpu, accelerator: 'a b', gpus: 1, preload: [a-b]}}
  3:12+1 bad-name: "A" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write a
  4:8+3 bad-name: "a_b" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write a-b
  5:8+8 bad-image: "TF/Image" is not the name of an image [REGISTRY/NAME:TAG or NAME@DIGEST, with the name in lower case]
  6:33+2 bad-name: "-x" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write x
  6:51+3 bad-name: "gpu" is not the name of a resource [a domain, / and a name, such as nvidia.com/gpu]
  6:69+5 bad-name: "a b" is not the name of an accelerator [the value of a node label, such as nvidia-l4]
  6:95+3 bad-module: "a-b" is not the name of a Python module [names joined by dots, such as tensorflow_text]

# Numbers and quantities
= jobs: {worker: 0}
  3:16+1 out-of-range: the tasks of "worker" can't be 0 [at least 1]
= jobs: {worker: -1}
  3:16+2 out-of-range: the tasks of "worker" can't be -1 [at least 1]
= jobs: {worker: 1e9}
  3:16+3 unclear: YAML parsers disagree on what "1e9" means [expected a number of tasks, a mapping, or a list of addresses] -> write a plain number, without leading zeros, signs or exponents
= jobs: {worker: {tasks: 1000000000}}
  3:24+10 out-of-range: "tasks" can't be 1000000000 [at most 10000]
= jobs: {worker: {tasks: "2"}}
  3:24+3 wrong-type: "tasks" can't be text [expected a whole number] -> write 2, without quotes
= jobs: {worker: "2"}
  3:16+3 wrong-type: "worker" can't be text [expected a number of tasks, a mapping, or a list of addresses] -> write 2, without quotes
= jobs: {worker: {tasks: true}}
  3:24+4 wrong-type: "tasks" can't be true [expected a whole number]
= jobs: {worker: {tasks: 2.0}}
  3:24+3 wrong-type: "tasks" can't be 2.0 [expected a whole number]
= jobs: {worker: {tasks: 010}}
  3:24+3 unclear: YAML parsers disagree on what "010" means [expected a whole number] -> write a plain number, without leading zeros, signs or exponents
= jobs:\n  worker:
  4:3+6 no-value: "worker" has no value [expected a number of tasks, a mapping, or a list of addresses]
= jobs: {worker: {gpus: 0.5}}
  3:23+3 wrong-type: "gpus" can't be 0.5 [expected a whole number] -> write a whole number: Kubernetes allocates whole GPUs only
= jobs: {worker: {memory: 4GB}}
  3:25+3 bad-quantity: "4GB" is not a quantity [expected a number of bytes, such as 4Gi or 512Mi] -> write 4Gi or 4G
= jobs: {worker: {memory: 512kb}}
  3:25+5 bad-quantity: "512kb" is not a quantity [expected a number of bytes, such as 4Gi or 512Mi] -> write 512Ki or 512k
= jobs: {worker: {memory: 4}}
  3:25+1 bad-quantity: "4" is less than 1 MiB [a number without a unit means bytes] -> write 4Gi
= jobs: {worker: {memory: 2048}}
  3:25+4 bad-quantity: "2048" is less than 1 MiB [a number without a unit means bytes] -> write 2048Mi
= jobs: {worker: {memory: 400m}}
  3:25+4 bad-quantity: "400m" is less than 1 MiB [the suffix m means thousandths] -> write 400Mi
= jobs: {worker: {memory: 9007199254740993}}
  3:25+16 unclear: YAML parsers disagree on what "9007199254740993" means [expected a number of bytes, such as 4Gi or 512Mi] -> write "9007199254740993", in quotes
= jobs: {worker: {memory: 2097152.5}}
  3:25+9 bad-quantity: "2097152.5" is not a number of bytes [expected whole bytes]
= jobs: {worker: {memory: 9000000000m}}
  3:25+11 bad-quantity: "9000000000m" is not a number of bytes [expected whole bytes]
= jobs: {worker: {memory: 100Ei}}
  3:25+5 bad-quantity: "100Ei" is too large [at most 8Ei]
= jobs: {worker: {memory: [4Gi]}}
  3:25+5 wrong-type: "memory" can't be a list [expected a number of bytes, such as 4Gi or 512Mi]
= jobs: {worker: {memory: 1e9}}
  3:25+3 unclear: YAML parsers disagree on what "1e9" means [expected a number of bytes, such as 4Gi or 512Mi] -> write "1e9", in quotes
= jobs: {worker: {cpu: 0.0001}}
  3:22+6 bad-quantity: "0.0001" is not a number of cores [at least 1m, in steps of 1m]
= jobs: {worker: {cpu: 1e30, memory: "1e30"}}
  3:22+4 unclear: YAML parsers disagree on what "1e30" means [expected a number of cores, such as 2 or 500m]
  3:36+6 bad-quantity: "1e30" is too large [at most 8Ei]
= max_duration: 1e30\nidle: .inf\njobs: {worker: {shm: 1e30}}
  3:15+4 unclear: YAML parsers disagree on what "1e30" means [expected a number of seconds, or a duration such as 10m]
  4:7+4 unclear: YAML parsers disagree on what ".inf" means [expected a number of seconds, or a duration such as 10m, or a mapping]
  5:22+4 unclear: YAML parsers disagree on what "1e30" means [expected a number of bytes, such as 4Gi or 512Mi]
= jobs: {worker: {cpu: "1e30"}}
  3:22+6 bad-quantity: "1e30" is too large [at most 1000000 cores]
= jobs: {worker: {cpu: "1.000000000000000000000000000001"}}
  3:22+34 bad-quantity: "1.000000000000000000000000000001" is not a number of cores [at least 1m, in steps of 1m]
= volumes: [{path: /a, size: "0.000000000000000000000000000000000000000000000000000000000000001"}]\njobs: {worker: 1}
  3:28+67 bad-quantity: "0.000000000000000000000000000000000000000000000000000000000000001" is not a quantity [at most 64 characters]
= jobs: {worker: {cpu: two}}
  3:22+3 bad-quantity: "two" is not a quantity [expected a number of cores, such as 2 or 500m]
= port: 70000\njobs: {worker: {port: 0}}
  3:7+5 out-of-range: "port" can't be 70000 [at most 65535]
  4:23+1 out-of-range: "port" can't be 0 [at least 1]
= ttl: 10 minutes\njobs: {worker: 1}
  3:6+10 bad-duration: "10 minutes" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
= ttl: 10000d\njobs: {worker: 1}
  3:6+6 bad-duration: "10000d" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
= ttl: 010m\njobs: {worker: 1}
  3:6+4 bad-duration: "010m" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
= ttl: 0\njobs: {worker: 1}
  3:6+1 out-of-range: 0 is out of range [expected 1 to 2147483647 seconds]
= jobs: {worker: {gpus: 1, gpus_optional: 1}}
  3:41+1 wrong-type: "gpus_optional" can't be 1 [expected true or false]
= max_duration: 8 hours\nidle: 0\njobs: {worker: 1}
  3:15+7 bad-duration: "8 hours" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
  4:7+1 out-of-range: 0 is out of range [expected 1 to 2147483647 seconds]
= max_duration: -1h\nidle: [30m]\njobs: {worker: 1}
  3:15+3 bad-duration: "-1h" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
  4:7+5 wrong-type: "idle" can't be a list [expected a number of seconds, or a duration such as 10m, or a mapping]
= idle: {}\njobs: {worker: 1}
  3:7+2 empty: idle has no limit [expected suspend, remove, or both]
= idle: {suspend: 1h, remove: 60m}\njobs: {worker: 1}
  3:7+26 bad-idle: the cluster would be removed before it is suspended [suspend has to be shorter]
= idle: {suspend: 1, remove: soon, sleep: 5}\njobs: {worker: 1}
  3:28+4 bad-duration: "soon" is not a duration [expected seconds, or a whole number with s, m, h or d, such as 10m; at most 9999d]
  3:34+5 unknown-key: there is no key "sleep" here -> the keys here are suspend, remove
= jobs: {worker: ["a:1"]}\nwarm: true
  4:1+4 needs-tasks: "warm" has no effect on servers that already run [job "worker" has addresses] -> remove warm
= jobs: {worker: 1}\nwarm: 3
  4:7+1 wrong-type: "warm" can't be 3 [expected true or false]
= idle: 30m\njobs: {worker: ["a:1"]}\nmax_duration: 8h
  3:1+4 needs-tasks: "idle" has no effect on servers that already run [job "worker" has addresses] -> remove idle
  5:1+12 needs-tasks: "max_duration" has no effect on servers that already run [job "worker" has addresses] -> remove max_duration
= metrics: {}\njobs: {worker: 1}
  3:10+2 empty: metrics names nobody who may read them [expected from, or metrics: true]
= metrics: yes\njobs: {worker: 1}
  3:10+3 unclear: YAML parsers disagree on what "yes" means [expected true or false, or a mapping] -> write true
= metrics: 9090\njobs: {worker: 1}
  3:10+4 wrong-type: "metrics" can't be 9090 [expected true or false, or a mapping]
= metrics: {from: [{}]}\njobs: {worker: ["a:1"]}
  3:1+7 needs-tasks: "metrics" has no effect on servers that already run [job "worker" has addresses] -> remove metrics
  3:18+2 bad-peer: this entry selects no pods and no addresses [expected namespace, pods or cidr]
= history: {claim: a, bucket: "s3://ab"}\njobs: {worker: 1}
  3:10+29 bad-history: a history can't have claim and bucket at once [expected exactly one of claim and bucket]
= history: {logs: true}\njobs: {worker: 1}
  3:10+12 bad-history: this history has no source [expected exactly one of claim and bucket]
= history: {claim: a, endpoint: "http://b"}\njobs: {worker: 1}
  3:10+32 bad-history: endpoint has no effect on a claim [expected bucket beside it]
= history: {bucket: "s3://ab", endpoint: "https://a..b"}\njobs: {worker: 1}
  3:40+14 bad-endpoint: "https://a..b" is not the URL of a server [such as https://minio.example:9000, without a path]
= history: {bucket: "s3://ab", endpoint: "https://[:::]"}\njobs: {worker: 1}
  3:10+46 bad-endpoint: [:::] is no IPv6 address [such as [2001:db8::1]]
= history: {bucket: "gs://ab", endpoint: "http://b"}\njobs: {worker: 1}
  3:10+41 bad-history: a gs:// bucket has no other endpoint [expected an s3:// bucket beside it]
= history: {bucket: "s3://ab/../c", endpoint: "https://me:pass@c/d", secret: S}\njobs: {worker: 1}
  3:19+14 bad-bucket: "s3://ab/../c" is not a bucket [s3://NAME/FOLDER or gs://NAME/FOLDER]
  3:45+21 bad-endpoint: "https://me:pass@c/d" is not the URL of a server [such as https://minio.example:9000, without a path]
  3:76+1 bad-name: "S" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write s
= jobs: {worker: {idle: 5}}
  3:17+4 unknown-key: there is no key "idle" here -> this key belongs at the top level, beside jobs
= ttl: []\njobs: {worker: 1}
  3:6+2 wrong-type: "ttl" can't be a list [expected a number of seconds, or a duration such as 10m]

# The cluster
= jobs: {worker: {accelerator: nvidia-l4}}
  3:30+9 needs-gpus: job "worker" requests an accelerator but no GPUs -> add gpus: 1, or remove accelerator
= master: cheif\njobs: {chief: 1, worker: 2}
  3:9+5 unknown-master: there is no job "cheif" [the jobs are chief, worker] -> write chief
= master: evaluator\njobs: {chief: 1, evaluator: 1}
  3:9+9 bad-master: sessions can't connect to the evaluator, which takes no part in the training [expected one of chief]
= jobs: {evaluator: 1}
  3:8+9 bad-master: an evaluator alone can't be a cluster: sessions never connect to it -> add a job, such as worker: 1
= jobs: {}
  3:7+2 empty: "jobs" is empty [expected at least one entry]
= jobs: {worker: ["10.0.0.5", "10.0.0.5:70000", "[::g]:1", a:1], ps: 1, chief: [a:1], evaluator: []}
  3:17+10 bad-address: "10.0.0.5" is not an address [HOST:PORT, with a port from 1 to 65535] -> write 10.0.0.5:2222
  3:29+16 bad-address: "10.0.0.5:70000" is not an address [HOST:PORT, with a port from 1 to 65535]
  3:47+9 bad-address: "[::g]:1" is not an address [HOST:PORT, with a port from 1 to 65535]
  3:64+2 mixed-addresses: job "worker" has addresses, and job "ps" has none [either all jobs have addresses, or none]
  3:79+3 duplicate-address: "a:1" is the address of two tasks [it is also on line 3]
  3:96+2 empty: "evaluator" is empty [expected at least one entry]
= jobs: {worker: ['[fd00:1]:1', '[::1]:2222', h:1], ps: [h:1]}
  3:17+12 bad-address: "[fd00:1]:1" is not an address [expected an IPv6 address in the brackets, such as [fd00::5]:2222]
  3:56+3 duplicate-address: "h:1" is the address of two tasks [it is also on line 3]
= security: {user: 0, group: 4294967296, service_account: A_B}\njobs: {worker: 1}
  3:18+1 out-of-range: "user" can't be 0 [at least 1] -> write another number: 0 is root, and processes in a pod must not run as root
  3:28+10 out-of-range: "group" can't be 4294967296 [at most 2147483647]
  3:57+3 bad-name: "A_B" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write a-b
= network: {allow_from: [{}, {cidr: 10.0.0.1/8}, {cidr: x}, {pods: {}}, {namespace: a, cidr: 10.0.0.0/8}, {ports: [1]}], allow_to: [{namespace: a, ports: [0]}], allow: 1}\njobs: {worker: 1}
  3:24+2 bad-peer: this entry selects no pods and no addresses [expected namespace, pods or cidr]
  3:35+10 bad-cidr: "10.0.0.1/8" is not a range of addresses [the address has bits set after the prefix] -> write 10.0.0.0/8
  3:55+1 bad-cidr: "x" is not a range of addresses [such as 10.0.0.0/8]
  3:66+2 empty: "pods" is empty [expected at least one entry]
  3:71+32 bad-peer: cidr can't be combined with namespace or pods [expected one of them]
  3:106+5 unknown-key: there is no key "ports" here -> the keys here are namespace, pods, cidr, except
  3:154+1 out-of-range: an entry of "ports" can't be 0 [at least 1]
  3:160+5 unknown-key: there is no key "allow" here -> write allow_to
= network: {allow_from: [{pods: {a: b}, except: [10.0.0.0/8]}, {except: [10.0.0.0/8]}, {cidr: 10.0.0.0/8, except: []}], allow_to: [{cidr: 10.0.0.0/8, except: [11.0.0.0/8, 10.0.0.0/8, "::/0", 10.1.0.0/16]}]}\njobs: {worker: 1}
  3:24+36 bad-peer: except needs cidr, the range that it leaves addresses out of [expected cidr]
  3:62+22 bad-peer: except needs cidr, the range that it leaves addresses out of [expected cidr]
  3:113+2 empty: "except" is empty [expected at least one entry]
  3:158+10 bad-except: "11.0.0.0/8" is not in 10.0.0.0/8 [expected a part of cidr]
  3:170+10 bad-except: "10.0.0.0/8" is all of 10.0.0.0/8 [expected a part of cidr]
  3:182+6 bad-except: "::/0" is not in 10.0.0.0/8 [expected a part of cidr]

# Programs
= jobs: {worker: {program: train.py}}
  3:26+8 wrong-type: "program" can't be text [expected a list] -> write [train.py]
= jobs: {worker: {program: []}}
  3:26+2 empty: "program" is empty [expected at least one entry]
= jobs: {worker: {program: [""]}}
  3:26+4 bad-program: the program has no name [expected a Python file, or a command of the image]
= jobs: {worker: {program: [train.py, --epochs, 3]}}
  3:47+1 wrong-type: an entry of "program" can't be 3 [expected text] -> write "3", in quotes
= jobs: {worker: {program: [a.py], preload: [tensorflow_text]}}
  3:34+7 needs-server: preload has no effect on job "worker", which runs a program -> import the modules in the program
= jobs: {ps: {tf1: true}, a: {tf1: true, program: [sh, a.py]}, b: {tf1: true, program: [python3.11, -u, -m, b]}}
  3:13+3 needs-program: tf1 has no effect on job "ps", which has no program -> remove tf1; session scripts get TensorFlow 1 by tfk8s submit --tf1
  3:49+10 bad-program: tf1 needs a program of Python, and "sh" is another command [expected a Python file, or python3 with -m MODULE or FILE.py]
= jobs: {ps: 1, worker: {program: [a.py, "$(TFK8S_HOSTS:chief)"]}}
  3:40+22 bad-program: $(TFK8S_HOSTS:chief) refers to no job [expected one of ps, worker]
= jobs: {ps: 1, worker: {program: [a.py]}}\nmaster: worker
  4:9+6 bad-master: sessions can't connect to a task of "worker", which runs a program [expected a job without program]
= jobs: {ps: 1}\nrun: {}
  4:1+3 needs-program: a run needs a job with a program -> add a program to a job
= jobs: {ps: 1, worker: {program: [a.py]}}\nrun: {success: ps}
  4:16+2 unknown-success: "ps" names no program [expected a job with a program (worker), or one of its tasks]
= jobs: {ps: 1, worker: {program: [a.py], tasks: 2}}\nrun: {success: worker/2, restart_on: failures, max_restarts: -1, timeout: 0}
  4:16+8 unknown-success: "worker/2" names no program [expected a job with a program (worker), or one of its tasks]
  4:38+8 bad-value: "restart_on" can't be "failures" [expected exit-code or failure or never] -> write failure
  4:62+2 out-of-range: "max_restarts" can't be -1 [at least 0]
  4:75+1 out-of-range: 0 is out of range [expected 1 to 2147483647 seconds]
= jobs: {worker: {program: [a.py]}}\nrun: {restart_on: 42}
  4:19+2 wrong-type: "restart_on" can't be 42 [expected exit-code or failure or never, or a list of exit codes] -> write [42]
= jobs: {worker: {program: [a.py]}}\nrun: {restart_on: []}
  4:19+2 empty: "restart_on" is empty [expected at least one entry]
= jobs: {worker: {program: [a.py]}}\nrun: {restart_on: [0, a]}
  4:20+1 out-of-range: an entry of "restart_on" can't be 0 [at least 1]
  4:23+1 wrong-type: an entry of "restart_on" can't be text [expected a whole number]

# tf.data's service
= jobs: {worker: 1, input: {kind: server, tasks: 2}}
  3:33+6 bad-value: "kind" can't be "server" [expected data] -> write data
= jobs: {worker: 1, input: {kind: data}}
  3:33+4 too-few-tasks: job "input" needs a dispatcher and a worker [expected at least 2 tasks] -> add tasks: 2
= jobs: {worker: 1, input: {kind: data, tasks: 1}}
  3:46+1 too-few-tasks: job "input" needs a dispatcher and a worker [expected at least 2 tasks]
= jobs: {worker: 1, input: {kind: data, tasks: 0}}
  3:46+1 out-of-range: "tasks" can't be 0 [at least 1]
= jobs: {worker: 1, input: {kind: data, tasks: 2}, more: {kind: data, tasks: 2}}
  3:63+4 two-data-services: job "input" runs tf.data's service already [a cluster has one] -> give input more tasks
= jobs: {worker: 1, input: {kind: data, tasks: 2, program: [a.py], preload: [a]}}
  3:27+4 bad-kind: job "input" can't run a program and tf.data's service -> remove kind, or remove program
  3:66+7 needs-server: preload has no effect on job "input", which runs tf.data's service -> remove preload
= jobs: {worker: 1, input: {kind: data, tasks: 2}}\nmaster: input
  4:9+5 bad-master: sessions can't connect to a task of "input", which runs tf.data's service [expected one of worker]
= jobs: {input: {kind: data, tasks: 2}}
  3:8+5 bad-master: tf.data's service alone can't be a cluster: sessions never connect to it -> add a job, such as worker: 1

# The pods
= env: {A: "a\\0b"}\njobs: {worker: 1}
  3:10+6 bad-character: U+0000 control character is not allowed in a job file
= env: {A: 1, B: true, C: yes, D: , E: 2.10, F: 22:30, TF_CONFIG: x, TFK8S_X: x, a-b: x}\njobs: {worker: 1}
  3:10+1 wrong-type: "A" can't be 1 [expected text, or a mapping with a source] -> write "1", in quotes
  3:16+4 wrong-type: "B" can't be true [expected text, or a mapping with a source] -> write "true", in quotes
  3:25+3 unclear: YAML parsers disagree on what "yes" means [expected text, or a mapping with a source] -> write "yes", in quotes
  3:30+1 no-value: "D" has no value [expected text, or a mapping with a source]
  3:38+4 wrong-type: "E" can't be 2.10 [expected text, or a mapping with a source] -> write "2.10", in quotes
  3:47+5 unclear: YAML parsers disagree on what "22:30" means [expected text, or a mapping with a source] -> write "22:30", in quotes
  3:54+9 reserved-name: "TF_CONFIG" is set by tfk8s [TF_CONFIG and names with the prefix TFK8S_ are reserved]
  3:68+7 reserved-name: "TFK8S_X" is set by tfk8s [TF_CONFIG and names with the prefix TFK8S_ are reserved]
  3:80+3 bad-env-name: "a-b" is not the name of an environment variable [letters, digits and "_", not starting with a digit] -> write a_b
= volumes: [{path: /data}, {path: /a, claim: a, secret: b}, {path: data, claim: a}, {path: /opt, claim: a}, {path: /tmp/, claim: a}, {path: /opt/tfk8s/x, claim: a}, {path: /x, claim: My_Claim}]\njobs: {worker: {volumes: [{path: /x/, claim: b}]}}
  3:11+13 bad-volume: this volume has no source [expected exactly one of claim, secret, config_map, size and bucket; or folder, for clusters on this machine]
  3:26+31 bad-volume: a volume can't have claim and secret at once [expected exactly one of claim, secret, config_map, size and bucket]
  3:66+4 bad-path: "data" is not a path in a container [absolute, without ":"]
  3:90+4 reserved-path: "/opt" would hide /opt/tfk8s, where tfk8s mounts its files
  3:114+5 reserved-path: "/tmp/" would hide /tmp, where tfk8s mounts its files
  3:139+12 reserved-path: "/opt/tfk8s/x" is in /opt/tfk8s, where tfk8s mounts its files
  3:182+8 bad-name: "My_Claim" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write my-claim
  4:34+3 duplicate-path: two volumes are mounted at "/x/" [the other volume is on line 3]
= volumes: [{path: /a, create: 1Gi, size: 1Gi}, {path: /b, claim: b, access: ReadWriteMany}, {path: /c, secret: c, local_mount: false}]\njobs: {worker: 1}
  3:11+34 bad-volume: create has no effect without claim [expected claim beside create]
  3:47+43 bad-volume: access has no effect without create [expected create beside access]
  3:92+41 bad-volume: local_mount has no effect without folder [expected folder beside local_mount]
= volumes: [{path: /a, claim: a, create: 1Gi, access: ReadWriteOften}, {path: /b, bucket: models/mnist}, {path: /c, bucket: "gs://models/.."}]\njobs: {worker: 1}
  3:53+14 bad-value: "access" can't be "ReadWriteOften" [expected ReadWriteOnce or ReadWriteMany or ReadWriteOncePod] -> write ReadWriteOnce
  3:89+12 bad-bucket: "models/mnist" is not a bucket of Cloud Storage [gs://NAME or gs://NAME/FOLDER] -> write gs://models/mnist
  3:123+16 bad-bucket: "gs://models/.." is not a bucket of Cloud Storage [gs://NAME or gs://NAME/FOLDER]
= volumes:\n- {path: /a, claim: a, create: 1Gi}\njobs:\n  worker: {volumes: [{path: /b, claim: a, create: 2Gi}, {path: /c, claim: a, create: 1Gi, storage_class: fast}, {path: /d, claim: a}]}
  6:51+3 claims-differ: claim "a" is made twice, with another create [the first is on line 4]
  6:106+4 claims-differ: claim "a" is made twice, with another storage_class [the first is on line 4]
= volumes: [{path: /a, claim: a, create: 1Gi, access: ReadWriteOncePod}]\njobs: {worker: 2, ps: {tasks: 1}}
  3:53+16 one-pod-claim: 3 tasks would mount claim "a", which is for one pod -> write ReadWriteMany
= volumes: [{path: /x, claim: a}]\njobs: {worker: {volumes: [{path: /x/, claim: b}, {path: /../x, size: 1Gi}]}}
  4:34+3 duplicate-path: two volumes are mounted at "/x/" [the other volume is on line 3]
  4:57+5 bad-path: "/../x" is not a path in a container [expected a path without ".."]
= jobs: {worker: {labels: {app.kubernetes.io/name: x, a b: c, ok: a b}, annotations: {tfk8s.dev/x: y}, node_selector: {/x: y}}}
  3:26+22 reserved-name: "app.kubernetes.io/name" is set by tfk8s [names with the prefix app.kubernetes.io/ are reserved]
  3:53+3 bad-label: "a b" is not the name of a label or annotation [letters, digits, "-", "_" and ".", starting and ending with a letter or digit, at most 63; optionally after a domain and /]
  3:65+3 bad-label: "a b" is not the value of a label [letters, digits, "-", "_" and ".", starting and ending with a letter or digit, at most 63]
  3:85+11 reserved-name: "tfk8s.dev/x" is set by tfk8s [names with the prefix tfk8s.dev/ are reserved]
  3:98+1 unclear: YAML parsers disagree on what "y" means [expected text] -> write "y", in quotes
  3:118+2 bad-label: "/x" is not the name of a label or annotation [letters, digits, "-", "_" and ".", starting and ending with a letter or digit, at most 63; optionally after a domain and /]
  3:122+1 unclear: YAML parsers disagree on what "y" means [expected text] -> write "y", in quotes
= jobs: {worker: {tolerations: [{value: x}, {operator: exists}, {key: a, operator: Exists, value: b}, {key: a, tolerationSeconds: 5}, {operator: on}, {operator: 1}]}}
  3:31+10 bad-toleration: a toleration without key needs operator: Exists
  3:54+6 bad-value: "operator" can't be "exists" [expected Equal or Exists] -> write Exists
  3:63+36 bad-toleration: a toleration with operator: Exists has no value
  3:101+30 bad-toleration: tolerationSeconds needs effect: NoExecute
  3:144+2 unclear: YAML parsers disagree on what "on" means [expected Equal or Exists]
  3:160+1 wrong-type: "operator" can't be 1 [expected Equal or Exists]
= image: [a]\nvolumes: /data\nmaster: true\njobs: {worker: {spot: "true", preload: tensorflow_text, env: [A=b], spots: 1}}
  3:8+3 wrong-type: "image" can't be a list [expected text]
  4:10+5 wrong-type: "volumes" can't be text [expected a list] -> write [/data]
  5:9+4 wrong-type: "master" can't be true [expected text] -> write "true", in quotes
  6:23+6 wrong-type: "spot" can't be text [expected true, false, gke, karpenter, aks or eks] -> write true, without quotes
  6:40+15 wrong-type: "preload" can't be text [expected a list] -> write [tensorflow_text]
  6:62+5 wrong-type: "env" can't be a list [expected a mapping]
  6:69+5 unknown-key: there is no key "spots" here -> write spot

= jobs: {worker: {spot: karpentr}, ps: {spot: [aks]}}
  3:23+8 bad-value: "spot" can't be "karpentr" [expected true, false, gke, karpenter, aks or eks] -> write karpenter
  3:45+5 wrong-type: "spot" can't be a list [expected true, false, gke, karpenter, aks or eks]

# Fields of pods in Kubernetes
= priority: high\njobs: {worker: {priority: high, priority_class: A_b, shm: 8}}
  3:1+8 unknown-key: there is no key "priority" here -> this key belongs to a job, as in jobs: {worker: {priority_class: …}}
  4:17+8 unknown-key: there is no key "priority" here -> write priority_class
  4:49+3 bad-name: "A_b" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write a-b
  4:59+1 bad-quantity: "8" is less than 1 MiB [a number without a unit means bytes] -> write 8Gi
= jobs:\n  worker: {gpus: 4, gpu_resource: google.com/tpu}\n  old: {gpus: 8, gpu_resource: cloud-tpus.google.com/v3, pod: {containers: [{name: server, resources: {limits: {google.com/tpu: 4}}}]}}
  4:35+14 out-of-scope: "google.com/tpu" is a TPU, and tfk8s starts no servers for TPUs [docs/scope.md says why, and names other tools]
  5:32+24 out-of-scope: "cloud-tpus.google.com/v3" is a TPU, and tfk8s starts no servers for TPUs [docs/scope.md says why, and names other tools]
  5:113+14 out-of-scope: "google.com/tpu" is a TPU, and tfk8s starts no servers for TPUs [docs/scope.md says why, and names other tools]
= image_pull_secrets: login\nlabels: {tfk8s.dev/a: b}\nannotations: {a: 1}\njobs: {worker: 1}
  3:21+5 wrong-type: "image_pull_secrets" can't be text [expected a list] -> write [login]
  4:10+11 reserved-name: "tfk8s.dev/a" is set by tfk8s [names with the prefix tfk8s.dev/ are reserved]
  5:18+1 wrong-type: "a" can't be 1 [expected text] -> write "1", in quotes
= env: {A: {secret: s, config_map: t, key: k}, B: {key: k}, C: {secret: S, key: a/b}, D: {secret: s}, E: [s], PYTHONPATH: {secret: s, key: k}}\njobs: {worker: {env: {F: {secret: s, kay: k}}}}
  3:10+34 bad-env-source: a variable can't have secret and config_map at once [expected exactly one of secret and config_map]
  3:49+8 bad-env-source: this variable has no source [expected exactly one of secret and config_map]
  3:71+1 bad-name: "S" is not a Kubernetes name [lower-case letters, digits and "-", starting and ending with a letter or digit] -> write s
  3:79+3 bad-name: "a/b" is not a key of a Secret or ConfigMap [letters, digits, "-", "_" and "." only]
  3:88+11 missing-key: "key" is missing [expected beside this] -> write key: …
  3:104+3 wrong-type: "E" can't be a list [expected text, or a mapping with a source]
  3:121+19 bad-variable: PYTHONPATH can't come from a Secret or ConfigMap, because tfk8s adds its own files to it [expected text]
  4:26+19 missing-key: "key" is missing [expected beside this] -> write key: …
  4:38+3 unknown-key: there is no key "kay" here -> the keys here are secret, config_map, key
= jobs: {worker: {shm: 1Gi, volumes: [{path: /dev/shm/, size: 1Gi}]}}
  3:22+3 duplicate-path: shm is mounted at /dev/shm, and so is a volume [a volume is mounted there on line 3]
= volumes: [{path: /dev/shm, size: 1Gi}]\njobs: {worker: {shm: 1Gi}}
  4:22+3 duplicate-path: shm is mounted at /dev/shm, and so is a volume [a volume is mounted there on line 3]
= jobs: {a: {topology: {spread: rack}}, b: {topology: {spread: zone, pack: host}}, c: {topology: {required: true}}, d: {topology: zone}}
  3:31+4 bad-name: "rack" is not a place of tasks [host, zone, or a label of nodes, such as example.com/rack]
  3:53+26 bad-topology: tasks can't be spread and packed at once [expected exactly one of spread and pack]
  3:96+16 bad-topology: this topology has no rule [expected exactly one of spread and pack]
  3:129+4 wrong-type: "topology" can't be text [expected a mapping]
= pod: {hostNetwork: true, spec: {}, dnsPolicy: ~, a: {b: [yes]}}\njobs: {worker: {pod: [a], labels: {a: b}}}
  3:7+11 reserved-key: "hostNetwork" is not allowed here [the pods meet the pod security standard `restricted`]
  3:26+4 reserved-key: "spec" is not allowed here [write the keys of the pod's spec below pod]
  3:36+9 no-value: "dnsPolicy" has no value [expected a value]
  3:58+3 unclear: YAML parsers disagree on what "yes" means [expected a value] -> write "yes", in quotes
  4:22+3 wrong-type: "pod" can't be a list [expected a mapping]
= jobs: {worker: {pod: {serviceAccountName: me, securityContext: {runAsUser: 0, runAsNonRoot: false}, volumes: [{name: scratch}, {name: a, hostPath: {path: /}}, {emptyDir: {}}]}}}
  3:23+18 reserved-key: "serviceAccountName" is not allowed here [write security: {service_account: …}]
  3:65+9 unknown-key: there is no key "runAsUser" here -> write security: {user: …}
  3:93+5 bad-value: "runAsNonRoot" can't be false [expected true: the pods meet the pod security standard `restricted`]
  3:118+7 reserved-name: "scratch" is a volume of tfk8s [expected another name]
  3:138+8 reserved-key: "hostPath" is not allowed here [the pods meet the pod security standard `restricted`; use a PersistentVolumeClaim]
  3:160+14 missing-key: "name" is missing [expected beside this] -> write name: …
= pod: {volumes: [{name: t, projected: {sources: [{secret: {name: a}}, {serviceAccountToken: {path: token}}]}}]}\njobs: {worker: 1}
  3:71+19 reserved-key: "serviceAccountToken" is not allowed here [the pods get no token of their ServiceAccount]
= pod: {containers: [{name: server, command: [sh], env: [{name: TFK8S_JOBS}, {name: PYTHONPATH}], volumeMounts: [{mountPath: /tmp}]}, {image: a}]}\njobs: {worker: 1}
  3:35+7 reserved-key: "command" is not allowed here [tfk8s sets it]
  3:63+10 reserved-name: "TFK8S_JOBS" is set by tfk8s [TF_CONFIG and names with the prefix TFK8S_ are reserved]
  3:83+10 reserved-name: "PYTHONPATH" is set by tfk8s [write env: {PYTHONPATH: …} as a key of the job]
  3:124+4 reserved-path: "/tmp" would hide /tmp, where tfk8s mounts its files
  3:133+10 missing-key: "name" is missing [expected beside this] -> write name: …
= pod: {containers: [{name: script, securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN], drop: []}}}], initContainers: [{name: server, ports: [{containerPort: 80, hostPort: 80}]}, {name: lifetime}]}\njobs: {worker: 1}
  3:27+6 reserved-name: "script" is a container of tfk8s [expected another name]
  3:65+4 bad-value: "privileged" can't be true [expected false: the pods meet the pod security standard `restricted`]
  3:92+9 bad-value: an entry of "add" can't be "SYS_ADMIN" [expected NET_BIND_SERVICE] -> write NET_BIND_SERVICE
  3:110+2 empty: "drop" is empty [expected at least one entry]
  3:142+6 reserved-name: "server" is a container of tfk8s [expected another name]
  3:178+8 reserved-key: "hostPort" is not allowed here [the pods meet the pod security standard `restricted`]
  3:202+8 reserved-name: "lifetime" is a container of tfk8s [expected another name]
= pod: {containers: [{name: a, startupProbe: {httpGet: {port: 80, host: h}}, lifecycle: {preStop: {tcpSocket: {host: h}}}}, {name: server, livenessProbe: {httpGet: {host: h}}}], initContainers: [{name: b, readinessProbe: {tcpSocket: {host: h}}, lifecycle: {postStart: {httpGet: {host: h}}}}]}\njobs: {worker: 1}
  3:65+4 reserved-key: "host" is not allowed here [the pods meet the pod security standard `restricted`]
  3:110+4 reserved-key: "host" is not allowed here [the pods meet the pod security standard `restricted`]
  3:164+4 reserved-key: "host" is not allowed here [the pods meet the pod security standard `restricted`]
  3:233+4 reserved-key: "host" is not allowed here [the pods meet the pod security standard `restricted`]
  3:278+4 reserved-key: "host" is not allowed here [the pods meet the pod security standard `restricted`]
= pod: {containers: [{name: server, resources: {limits: {cpu: x, rdma/hca: 1}, requests: {cpu: -1, memory: 0.5}}}]}\njobs: {worker: 1}
  3:61+1 bad-quantity: "x" is not a quantity [expected a Kubernetes quantity, such as 2, 500m or 4Gi]
  3:94+2 bad-quantity: "-1" is not a quantity [expected a Kubernetes quantity, such as 2, 500m or 4Gi]
= pod: {nodeSelector: [a], affinity: abc, tolerations: [a, {key: 3}], resources: {requests: [a]}}\njobs: {worker: {pod: {nodeSelector: {a: 1}}}}
  3:21+3 wrong-type: "nodeSelector" can't be a list [expected a mapping]
  3:36+3 wrong-type: "affinity" can't be text [expected a mapping]
  3:55+1 wrong-type: an entry of "tolerations" can't be text [expected a mapping]
  3:64+1 wrong-type: "key" can't be 3 [expected text] -> write "3", in quotes
  3:91+3 wrong-type: "requests" can't be a list [expected a mapping]
  4:41+1 wrong-type: "a" can't be 1 [expected text] -> write "1", in quotes
= pod: {containers: [{name: a}, {name: a}, {name: server, env: [{name: A}, {name: A}]}]}\nimage_pull_secrets: [a, b, a]\njobs: {worker: 1}
  3:38+1 duplicate-name: "a" is given twice [it is also on line 3]
  3:81+1 duplicate-name: "A" is given twice [it is also on line 3]
  4:28+1 duplicate-name: "a" is given twice [it is also on line 4]
= pod: {affinity: {podAffinity: [a]}, topologySpreadConstraints: [a]}\njobs: {worker: 1}
  3:31+3 wrong-type: "podAffinity" can't be a list [expected a mapping]
  3:65+1 wrong-type: an entry of "topologySpreadConstraints" can't be text [expected a mapping]
= pod: {$patch: replace, dnsConfig: {options: [{$retainKeys: [a]}]}, volumes: [{name: a, $patch: delete}]}\njobs: {worker: 1}
  3:7+6 reserved-key: "$patch" is not allowed here [tfk8s merges pod without directives of kubectl]
  3:47+11 reserved-key: "$retainKeys" is not allowed here [tfk8s merges pod without directives of kubectl]
  3:88+6 reserved-key: "$patch" is not allowed here [tfk8s merges pod without directives of kubectl]
"""

# Files that do not fit into the table, with the only problem of each.
RAW_FILES: list[tuple[str | bytes, str]] = [
    ("", "empty-file: the job file is empty -> create a job file with: tfk8s init"),
    (b"\x89PNG\x00\xff", "binary-file: this is a binary file, not a job file"),
    ("a: 1".encode("utf-16"), "not-utf8: the file is UTF-16, not UTF-8 -> save it as UTF-8"),
    ("a: 1\nb: caf\xe9".encode("latin-1"), "2:7+1 not-utf8: byte 0xe9 is not UTF-8 -> save the file as UTF-8"),
    ("\ud800", "1:1+1 not-utf8: byte 0xed is not UTF-8 -> save the file as UTF-8"),
    (b"#" * (2 << 20), "too-large: a job file can have at most 1 MiB"),
    ("[" * 900, "1:33+1 too-deep: a job file can have at most 32 levels"),
    (HEAD + "jobs: {" + "a" * 64 + ": 1}", f'3:8+64 name-too-long: "{"a" * 64}" has 64 characters [at most 63] -> remove 1 character'),
    (
        HEAD + "jobs: {" + ", ".join(f"a{n}: 1" for n in range(101)) + "}",
        '3:7+799 too-many: "jobs" has more than 100 entries [at most 100]',
    ),
    (
        HEAD + "jobs: {worker: 1}\nenv: {A: '" + "x" * 131_070 + "'}",
        '4:10+131072 too-large: variable "A" has 131072 bytes [at most 131071 bytes, including the name]',
    ),
    (
        HEAD + "queue: a\njobs: {" + ", ".join(f"j{n}: 1" for n in range(19)) + "}",
        "3:8+1 too-large: Kueue takes a cluster of at most 18 jobs [there are 19 jobs] -> remove queue, or join jobs",
    ),
]  # fmt: skip
TOO_MANY_PROBLEMS = HEAD + "jobs: {worker: 1}\nenv:\n" + "".join(f"  A{n}: {n}\n" for n in range(150))


def brief(problem: Problem) -> str:
    """Return a problem in one line."""
    place = f"{problem.line}:{problem.column}+{problem.length} " if problem.line else ""
    label = f" [{problem.label}]" if problem.label else ""
    advice = f" -> {problem.help}" if problem.help else ""
    return f"{place}{problem.code}: {problem.message}{label}{advice}"


def cases() -> list[tuple[str, list[str]]]:
    """Return each job file with its problems."""
    files: list[tuple[str, list[str]]] = []
    for line in TABLE.splitlines():
        kind, rest = line[:2], line[2:]
        if kind in ("= ", "! "):
            text = rest.encode("latin-1", "backslashreplace").decode("unicode_escape")
            files.append((HEAD * (kind == "= ") + text, []))
        elif kind == "  ":
            rest = rest.replace("KEYS_OF_CLUSTER", ", ".join(JOB_FILE.keys))
            files[-1][1].append(rest.replace("KEYS_OF_JOB", ", ".join(JOB.keys)))
    return files
