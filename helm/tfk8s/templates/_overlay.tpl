{{- /* The spec of a job's pods, with `pod` of the cluster and of the job merged into it: list $ CLUSTER JOB. */}}
{{- define "tfk8s.spec" }}{{ $spec := include "tfk8s.pod" . | fromYaml }}{{ $job := last . }}
{{- range list (first .).Values.pod $job.settings.pod }}{{ if . }}{{ $spec = get (include "tfk8s.merge" (list $spec . "") | fromJson) "value" }}
  {{- range concat $spec.containers ($spec.initContainers | default list) }}{{ if ne .name "server" }}
    {{- $security := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "readOnlyRootFilesystem" true }}
    {{- $_ := set . "securityContext" (get (include "tfk8s.merge" (list $security (.securityContext | default dict) "") | fromJson) "value") }}{{ end }}{{ end }}
{{- end }}{{ end }}{{ include "tfk8s.json" $spec }}{{ end }}

{{- /* The labels, annotations and spec of a pod besides the tasks, as JSON: list $ CLUSTER MASTER LABELS. See tfk8s/render/other_pods.py. */}}
{{- define "tfk8s.otherPod" }}{{ $ := first . }}{{ $master := index . 2 }}{{ $metadata := dict "labels" dict "annotations" dict }}
{{- range $key, $value := merge (dict) (last .) $master.podLabels }}
  {{- if not (hasPrefix "kueue.x-k8s.io/" $key) }}{{ $_ := set $metadata.labels $key $value }}{{ end }}{{ end }}
{{- range $key, $value := $master.podAnnotations }}
  {{- if not (hasPrefix "kueue.x-k8s.io/" $key) }}{{ $_ := set $metadata.annotations $key $value }}{{ end }}{{ end }}
{{- $pod := include "tfk8s.spec" (list $ (index . 1) $master) | fromJson }}{{ $gpus := "cloud.google.com/gke-%s" }}
{{- $nodes := omit ($pod.nodeSelector | default dict) (printf $gpus "accelerator") (printf $gpus "gpu-partition-size") (printf $gpus "gpu-sharing-strategy") (printf $gpus "max-shared-clients-per-gpu") }}
{{- $spec := omit $pod "affinity" "nodeName" "nodeSelector" "readinessGates" "resourceClaims" "resources" "restartPolicy" "schedulingGates" "schedulingGroup" "subdomain" "topologySpreadConstraints" }}
{{- with $nodes }}{{ $_ := set $spec "nodeSelector" . }}{{ end }}
{{- with pick ($pod.affinity | default dict) "nodeAffinity" }}{{ $_ := set $spec "affinity" . }}{{ end }}
{{- range $spec.initContainers }}{{ $_ := unset (.resources | default dict) "claims" }}{{ end }}
{{- dict "metadata" $metadata "spec" $spec | toJson }}{{ end }}

{{- /* Kubernetes' strategic merge, as {"value": …}: list BASE PATCH KEY, of which KEY is the key of both in a mapping.
       Lists are merged by the key of their entries that types.go of k8s.io/api/core/v1 names, or replaced; tolerations are added. */}}
{{- define "tfk8s.merge" }}{{ $base := index . 0 }}{{ $patch := index . 1 }}{{ $key := last . }}{{ $value := $patch }}
{{- $names := dict "containers" "name" "env" "name" "hostAliases" "ip" "imagePullSecrets" "name" "initContainers" "name" "ports" "containerPort" "resourceClaims" "name"
    "schedulingGates" "name" "topologySpreadConstraints" "topologyKey" "volumeDevices" "devicePath" "volumeMounts" "mountPath" "volumes" "name" }}
{{- if and (kindIs "map" $base) (kindIs "map" $patch) }}{{ $value = deepCopy $base }}
  {{- range $name, $new := $patch }}{{ if hasKey $base $name }}{{ $new = get (include "tfk8s.merge" (list (get $base $name) $new $name) | fromJson) "value" }}{{ end }}
    {{- $_ := set $value $name $new }}{{ end }}
{{- else if and (kindIs "slice" $base) (kindIs "slice" $patch) }}{{ $name := get $names $key }}
  {{- if eq $key "tolerations" }}{{ $value = $base }}{{ range $patch }}{{ if not (has . $base) }}{{ $value = append $value . }}{{ end }}{{ end }}
  {{- else if $name }}{{ $value = $base }}{{ $seen := list }}
    {{- range $new := $patch }}{{ $entries := list }}{{ $found := false }}
      {{- if has $key (list "containers" "env" "initContainers" "volumeMounts" "volumes") }}
        {{- if has (get $new $name) $seen }}{{ fail (printf "pod: %q is given twice in %s" (get $new $name) $key) }}{{ end }}{{ $seen = append $seen (get $new $name) }}{{ end }}
      {{- range $old := $value }}{{ if and (not $found) (include "tfk8s.same" (list $old $new $name)) }}{{ $found = true }}
        {{- $old = get (include "tfk8s.merge" (list $old $new "") | fromJson) "value" }}{{ end }}{{ $entries = append $entries $old }}{{ end }}
      {{- $value = $found | ternary $entries (append $entries $new) }}{{ end }}{{ end }}{{ end }}
{{- dict "value" $value | toJson }}{{ end }}

{{- /* Whether two entries of a list have the same name: list ENTRY ENTRY KEY. */}}
{{- define "tfk8s.same" }}{{ $name := last . }}{{ $old := first . }}{{ $new := index . 1 }}
{{- if and (kindIs "map" $old) (kindIs "map" $new) }}{{ if and (hasKey $old $name) (hasKey $new $name) }}
  {{- if eq (get $old $name | toJson) (get $new $name | toJson) }}true{{ end }}{{ end }}{{ end }}{{ end }}

{{- /* JSON of several lines, without the characters that YAML forbids. */}}
{{- define "tfk8s.json" }}{{ $text := toPrettyJson . }}{{ range concat (untilStep 127 160 1) (list 65279 65534 65535) }}
  {{- $text = replace (printf "%c" .) (printf "\\u%04x" .) $text }}{{ end }}{{ $text }}{{ end }}
