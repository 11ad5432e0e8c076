#!/usr/bin/env bash
# Builds the real Karpenter with its provider of simulated nodes from its Go module, and runs it for a kind cluster.
#
#   tests/karpenter/operator.sh build FOLDER               # keeps what it builds in FOLDER, for another time
#   tests/karpenter/operator.sh run FOLDER KUBECONFIG      # until a signal: Karpenter, and kwok, which plays the nodes
#
# Needs Go and kubectl, and kwok on the PATH. The build takes about 3 minutes on two cores.
set -euo pipefail
command=$1 work=$2 version=v1.9.0

module() { go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'; }

case $command in
build)
    [ ! -x "$work/karpenter" ] || exit 0
    mkdir -p "$work"
    rm -rf "$work/source"
    cp -r "$(module "sigs.k8s.io/karpenter@$version")" "$work/source"
    chmod -R u+w "$work/source"
    (cd "$work/source" && CGO_ENABLED=0 go build -ldflags -s -o "$work/karpenter" ./kwok)
    ;;
run)
    export KUBECONFIG=$3
    kubectl apply --server-side --force-conflicts -f "$work/source/kwok/charts/crds" -f "$work/source/kwok/apis/crds"
    kubectl wait --for condition=established --timeout 60s crd/nodepools.karpenter.sh crd/kwoknodeclasses.karpenter.kwok.sh
    stages=$(module sigs.k8s.io/kwok@v0.8.0)/kustomize/stage
    trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
    # A node that sends no heartbeat is "not ready" after 40 s.
    kwok --kubeconfig "$KUBECONFIG" --manage-all-nodes=false --node-lease-duration-seconds=40 \
        --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --config "$stages/node/fast/node-initialize.yaml" \
        --config "$stages/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml" \
        --config "$stages/pod/fast/pod-ready.yaml" --config "$stages/pod/fast/pod-complete.yaml" \
        --config "$stages/pod/fast/pod-delete.yaml" &
    SYSTEM_NAMESPACE=kube-system DISABLE_LEADER_ELECTION=true BATCH_MAX_DURATION=2s METRICS_PORT=0 \
        HEALTH_PROBE_PORT=0 "$work/karpenter" &
    wait -n
    ;;
esac
