#!/usr/bin/env bash
# Builds the real Kueue from its Go module, and runs Kueue on a kind cluster, or removes Kueue.
#
#   tests/kueue/operator.sh build FOLDER                  # alone, for a later `install`
#   tests/kueue/operator.sh install KIND_CLUSTER FOLDER   # keeps what it builds in FOLDER, for another time
#   tests/kueue/operator.sh remove KIND_CLUSTER FOLDER
#
# SETTINGS in the environment is added to the configuration of Kueue, for example 'waitForPodsReady: {timeout: 20s}'.
# Needs Go, Docker, kubectl and kind. The build takes about 5 minutes on two idle cores.
set -euo pipefail
command=$1 cluster=${3:+$2} work=${3:-$2} version=v0.19.0 image=tfk8s-kueue
kubectl=(kubectl --context "kind-$cluster")

build() {
    local module
    mkdir -p "$work"
    module=$(go mod download -json "sigs.k8s.io/kueue@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    rm -rf "$work/source"
    cp -r "$module" "$work/source"
    chmod -R u+w "$work/source"
    [ -x "$work/manager" ] || (cd "$work/source" && CGO_ENABLED=0 go build -trimpath -ldflags -s -o "$work/manager" ./cmd/kueue)
    # The pod of Kueue demands a user who is not root.
    printf 'FROM scratch\nCOPY manager /manager\nUSER 65532:65532\nENTRYPOINT ["/manager"]\n' >"$work/Dockerfile"
    echo source >"$work/.dockerignore"
    docker build --quiet --tag "$image:$version" "$work" >/dev/null
    docker save --output "$work/kueue.tar" "$image:$version"
    kubectl kustomize "$work/source/config/default" |
        sed -E "s#image: .*kueue:.*#image: docker.io/library/$image:$version#; s#imagePullPolicy: Always#imagePullPolicy: IfNotPresent#; s#cpu: 500m#cpu: 50m#" \
            >"$work/kueue.new"
    mv "$work/kueue.new" "$work/kueue.yaml"
}

case $command in
build)
    [ -e "$work/kueue.yaml" ] || build
    ;;
install)
    [ -e "$work/kueue.yaml" ] || build
    kind load image-archive "$work/kueue.tar" --name "$cluster"
    "${kubectl[@]}" apply --server-side --force-conflicts -f "$work/kueue.yaml" >/dev/null
    if [ -n "${SETTINGS:-}" ]; then
        settings=$("${kubectl[@]}" --namespace kueue-system get configmap kueue-manager-config \
            --output 'jsonpath={.data.controller_manager_config\.yaml}')
        "${kubectl[@]}" --namespace kueue-system create configmap kueue-manager-config --dry-run=client --output yaml \
            --from-literal "controller_manager_config.yaml=$settings
$SETTINGS" | "${kubectl[@]}" apply --server-side --force-conflicts -f - >/dev/null
    fi
    "${kubectl[@]}" --namespace kueue-system rollout restart deployment/kueue-controller-manager >/dev/null
    "${kubectl[@]}" --namespace kueue-system rollout status deployment/kueue-controller-manager --timeout 5m
    ;;
remove)
    [ ! -e "$work/kueue.yaml" ] ||
        "${kubectl[@]}" delete -f "$work/kueue.yaml" --ignore-not-found --wait=false >/dev/null
    ;;
esac
