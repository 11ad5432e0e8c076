#!/usr/bin/env bash
# Runs one program three times on a kind cluster, and compares the losses that the program prints:
#
#   1. as the TFJob in tfjob.yaml, by the real training-operator
#   2. by `tfk8s run`, with the job file that `tfk8s init --from` made of that TFJob, as the API server has it
#   3. by `tfk8s run --local`, with the same job file
#
# The script builds the operator from its Go module, and removes the operator and everything else at its end.
# Needs Go, Docker, kubectl, kind, and the image of tfjob.yaml in the cluster. Takes about 5 minutes on two cores,
# of which the build takes 3.
#
#   tests/tfjob/compare.sh [KIND_CLUSTER]     # default: test; WORK=DIR keeps the built operator for another run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${1:-test} namespace=tfjob-compare
work=${WORK:-$(mktemp -d)}
tfk8s=${TFK8S:-$here/../../.venv/bin/tfk8s}
kubectl=(kubectl --context "kind-$cluster")
mkdir -p "$work"

remove() {
    "${kubectl[@]}" delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null
    "$here/operator.sh" remove "$cluster" "$work"
    [ -n "${WORK:-}" ] || rm -rf "$work"
}
trap remove EXIT

"$here/operator.sh" install "$cluster" "$work"

since() { awk -v start="$1" -v now="$(date +%s.%N)" 'BEGIN { printf "%.1f", now - start }'; }

echo "--- 1. the TFJob"
"${kubectl[@]}" create namespace "$namespace"
"${kubectl[@]}" label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
start=$(date +%s.%N)
for try in 1 2 3 4 5; do # the operator's webhook gets its certificate a moment after the operator is ready
    "${kubectl[@]}" --namespace "$namespace" apply -f "$here/tfjob.yaml" && break || [ "$try" -lt 5 ]
    sleep 5
    start=$(date +%s.%N)
done
"${kubectl[@]}" --namespace "$namespace" wait tfjob/tfjob-mwm --for condition=Succeeded --timeout 3m
echo "$(since "$start") s until the TFJob has succeeded"
"${kubectl[@]}" --namespace "$namespace" logs tfjob-mwm-worker-0 | tee "$work/tfjob.out"
"${kubectl[@]}" --namespace "$namespace" get tfjob tfjob-mwm -o yaml >"$work/live.yaml"
"${kubectl[@]}" --namespace "$namespace" delete tfjob tfjob-mwm

echo "--- 2. tfk8s on Kubernetes"
rm -f "$work/cluster.yaml"
(cd "$work" && "$tfk8s" init --from live.yaml)
start=$(date +%s.%N)
"$tfk8s" run "$work/cluster.yaml" --context "kind-$cluster" | tee "$work/kubernetes.out"
echo "$(since "$start") s until tfk8s run has removed the cluster"

echo "--- 3. tfk8s on this machine"
start=$(date +%s.%N)
"$tfk8s" run --local "$work/cluster.yaml" | tee "$work/local.out"
echo "$(since "$start") s until tfk8s run --local has removed the cluster"

loss() { sed -n 's/.*\(2 replicas, loss .*\)/\1/p' "$1" | sort -u; }
for out in kubernetes local; do
    if [ -z "$(loss "$work/tfjob.out")" ] || [ "$(loss "$work/$out.out")" != "$(loss "$work/tfjob.out")" ]; then
        echo "the losses differ: $(loss "$work/tfjob.out") as a TFJob, $(loss "$work/$out.out") by tfk8s ($out)" >&2
        exit 1
    fi
done
echo "the same three times: $(loss "$work/tfjob.out")"
