#!/usr/bin/env bash
# Builds the real training-operator from its Go module, and runs the operator on a kind cluster, or removes it.
#
#   tests/tfjob/operator.sh install KIND_CLUSTER FOLDER   # keeps what it builds in FOLDER, for another time
#   tests/tfjob/operator.sh remove KIND_CLUSTER FOLDER
#
# Needs Go, Docker, kubectl and kind. The build takes about 3 minutes on two cores.
set -euo pipefail
command=$1 cluster=$2 work=$3 version=v1.8.1 image=tfjob-operator
kubectl=(kubectl --context "kind-$cluster")

build() {
    local module
    mkdir -p "$work"
    module=$(go mod download -json "github.com/kubeflow/training-operator@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    cp -r "$module" "$work/source"
    chmod -R u+w "$work/source"
    (cd "$work/source" && CGO_ENABLED=0 go build -ldflags -s -o "$work/manager" ./cmd/training-operator.v1)
    printf 'FROM scratch\nCOPY manager /manager\nENTRYPOINT ["/manager"]\n' >"$work/Dockerfile"
    echo source >"$work/.dockerignore"
    docker build --quiet --tag "$image:$version" "$work" >/dev/null
    docker save --output "$work/operator.tar" "$image:$version"
    kubectl kustomize "$module/manifests/overlays/standalone" 2>/dev/null |
        sed "s#image: kubeflow/training-operator:.*#image: docker.io/library/$image:$version#" >"$work/operator.yaml"
}

case $command in
install)
    [ -e "$work/operator.yaml" ] || build
    kind load image-archive "$work/operator.tar" --name "$cluster"
    "${kubectl[@]}" apply --server-side -f "$work/operator.yaml" >/dev/null
    "${kubectl[@]}" --namespace kubeflow rollout status deployment/training-operator --timeout 2m
    ;;
remove)
    [ ! -e "$work/operator.yaml" ] ||
        "${kubectl[@]}" delete -f "$work/operator.yaml" --ignore-not-found --wait=false >/dev/null
    ;;
esac
