{{- /* The spec of a job's pods: list $ CLUSTER JOB. */}}
{{- define "tfk8s.pod" }}{{ $ := first . }}{{ $job := last . }}{{ $settings := $job.settings }}
{{- $amounts := dict "cpu" $job.cpu "memory" $job.memory }}{{ $cpu := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" $job.cpu }}
{{- $core := get (dict "" 1 "m" 1000 "u" 1000000 "n" 1000000000) (trimPrefix $cpu $job.cpu) | default 0 | float64 }}
{{- $nodes := $settings.node_selector | default dict }}{{ $tolerations := $settings.tolerations | default list }}
{{- with $settings.accelerator }}{{ $_ := set $nodes "cloud.google.com/gke-accelerator" . }}{{ end }}
{{- if $job.gpus }}{{ $_ := set $amounts $job.gpu (toString $job.gpus) }}
  {{- $tolerations = append $tolerations (dict "key" $job.gpu "operator" "Exists" "effect" "NoSchedule") }}{{ end }}
{{- $spots := dict "gke" (list "cloud.google.com/gke-spot" "true" "NoSchedule") "karpenter" (list "karpenter.sh/capacity-type" "spot") "aks" (list "kubernetes.azure.com/scalesetpriority" "spot" "NoSchedule") "eks" (list "eks.amazonaws.com/capacityType" "SPOT") }}
{{- with get $spots (toString $settings.spot | replace "true" "gke") }}{{ $label := first . }}{{ $value := index . 1 }}{{ $_ := set $nodes $label $value }}{{ range slice . 2 }}{{ $tolerations = append $tolerations (dict "key" $label "operator" "Equal" "value" $value "effect" .) }}{{ end }}{{ end }}
{{- $security := $.Values.security | default dict }}{{ $group := int ($security.group | default 65532) }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ if and $settings.program $.Values.grace }}{{ add (include "tfk8s.seconds" $.Values.grace) 3 }}{{ else }}5{{ end }}
securityContext: {runAsNonRoot: true, runAsUser: {{ int ($security.user | default 65532) }}, runAsGroup: {{ $group }}, fsGroup: {{ $group }},
  fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
{{- with $security.service_account }}{{ printf "\nserviceAccountName: %q" . }}{{ end }}{{ with $settings.priority_class }}{{ printf "\npriorityClassName: %q" . }}{{ end }}
{{- with $.Values.image_pull_secrets }}{{ printf "\nimagePullSecrets:" }}{{ range . }}{{ printf "\n  - name: %q" . }}{{ end }}{{ end }}
{{- if $settings.program }}{{ printf "\nsubdomain: %q\nrestartPolicy: Never" $.Values.name }}{{ end }}{{ if (index . 1).gang }}{{ printf "\nschedulingGroup: {podGroupName: %q}" $.Values.name }}{{ end }}
{{- with $nodes }}{{ printf "\nnodeSelector: %s" (toJson .) }}{{ end }}
{{- with $tolerations }}{{ printf "\ntolerations: %s" (toJson .) }}{{ end }}
{{- include "tfk8s.topology" (list $ $job) }}
containers:
  - name: server
    image: {{ quote $job.image }}
    {{- $command := $settings.kind | empty | ternary (list "python3" "-m" "tfk8s.task.server") (list "python3" "-m" "tfk8s.task.data.service" "/tmp/data") }}{{ if $settings.program }}{{ $run := $.Values.run | default dict }}
      {{- $command = list "python3" "-P" "-m" "tfk8s.task.programs.pod" (kindIs "slice" $run.restart_on | ternary (join "," $run.restart_on) ($run.restart_on | default "exit-code")) (include "tfk8s.maxRestarts" $run) (int (index . 1).restartsPort | empty | ternary "-" (printf "%s/0:%d" (ternary $job.name (first (index . 1).programs).name (eq (toString $run.restart_scope) "job")) (int (index . 1).restartsPort))) }}
      {{- range $settings.program }}{{ $command = append $command (replace "$" "$$" .) }}{{ end }}{{ end }}
    command: {{ include "tfk8s.json" $command | nindent 6 }}
    env: {{- include "tfk8s.env" . | indent 6 }}
    ports: [{name: grpc, containerPort: {{ $job.port }}}{{ if (index . 1).readers }}, {name: tfk8s-metrics, containerPort: {{ (index . 1).metricsPort }}}{{ end }}]
    resources:
      requests: {{ merge (dict) (include "tfk8s.storage" (list $ "128Mi") | fromJson) $amounts | toJson }}
      {{- $limits := include "tfk8s.storage" (list $ "4Gi") | fromJson }}{{ if $settings.cpu }}{{ $_ := set $limits "cpu" (lt (float64 $cpu) $core | ternary "1" $job.cpu) }}{{ end }}{{ if $settings.memory }}{{ $_ := set $limits "memory" $job.memory }}{{ end }}{{ if $job.gpus }}{{ $_ := set $limits $job.gpu (toString $job.gpus) }}{{ end }}{{ with $limits }}{{ printf "\n      limits: %s" (toJson .) }}{{ end }}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
    {{- if not $settings.program }}
    startupProbe: {tcpSocket: {port: grpc}, periodSeconds: 1, failureThreshold: 300}
    readinessProbe: {tcpSocket: {port: grpc}, periodSeconds: 5, timeoutSeconds: 5}{{ end }}
    {{- $volumes := concat ($.Values.volumes | default list) ($settings.volumes | default list) }}{{ $paths := dict }}
    volumeMounts:
      - {name: tfk8s, mountPath: /opt/tfk8s/tfk8s.zip, subPath: tfk8s.zip, readOnly: true}
      - {name: scratch, mountPath: /tmp}
      {{- if $settings.shm }}{{ $_ := set $paths "/dev/shm" true }}
      - {name: shm, mountPath: /dev/shm}{{ end }}
      {{- range $number, $_ := $volumes }}
      - {name: volume-{{ $number }}, mountPath: {{ quote .path }}{{ if .read_only }}, readOnly: true{{ end }}}
      {{- if hasKey $paths (clean .path) }}{{ fail (printf "volumes: two volumes of job %q are mounted at %q" $job.name .path) }}{{ end }}
      {{- $_ := set $paths (clean .path) true }}{{ end }}
volumes:
  - {name: tfk8s, configMap: {name: {{ quote $.Values.name }}, items: [{key: tfk8s.zip, path: tfk8s.zip}]}}
  - {name: scratch, emptyDir: {sizeLimit: 2Gi}}
  {{- with $settings.shm }}
  - {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ include "tfk8s.text" . | quote }}}}{{ end }}
  {{- range $number, $_ := $volumes }}
  - name: volume-{{ $number }}
    {{ with .claim }}persistentVolumeClaim: {claimName: {{ quote . }}}{{ end }}
    {{- with .secret }}secret: {secretName: {{ quote . }}}{{ end }}
    {{- with .config_map }}configMap: {name: {{ quote . }}}{{ end }}
    {{- with .size }}emptyDir: {sizeLimit: {{ include "tfk8s.text" . | quote }}}{{ end }}
    {{- if .bucket }}{{ $bucket := splitn "/" 2 (.bucket | trimPrefix "gs://" | trimSuffix "/") }}
    {{- $options := printf "implicit-dirs,uid=%d,gid=%d" (int ($security.user | default 65532)) $group }}
    csi:
      driver: gcsfuse.csi.storage.gke.io
      {{- if .read_only }}{{ printf "\n      readOnly: true" }}{{ end }}
      volumeAttributes: {bucketName: {{ quote $bucket._0 }}, mountOptions: {{ with $bucket._1 }}{{ $options = printf "%s,only-dir=%s" $options . }}{{ end }}{{ quote $options }}}{{ end }}
    {{- if not (or .claim .secret .config_map .size .bucket) }}{{ fail (printf "volumes: the volume at %q has only a folder, which only clusters on this machine have: add claim" .path) }}{{ end }}
  {{- end }}{{ end }}

{{- /* An amount of storage, as JSON: list $ AMOUNT. In a queue none, because an ordinary ClusterQueue of Kueue does not cover storage. */}}
{{- define "tfk8s.storage" }}{{ empty (first .).Values.queue | ternary (dict "ephemeral-storage" (last .)) dict | toJson }}{{ end }}

{{- /* The place of a job's pods in relation to each other. */}}
{{- define "tfk8s.topology" }}{{ $ := first . }}{{ $job := last . }}{{ $topology := $job.settings.topology | default dict }}{{ $place := $topology.spread | default $topology.pack }}
{{- $host := "kubernetes.io/hostname" }}{{ $key := get (dict "host" $host "zone" "topology.kubernetes.io/zone") (toString $place) | default (toString $place) }}
{{- $selector := dict "matchLabels" $job.labels }}{{ $affinity := dict }}{{ $fields := list }}{{ range $.Values.avoid }}{{ $fields = append $fields (dict "key" "metadata.name" "operator" "NotIn" "values" (list .)) }}{{ end }}{{ with $fields }}{{ $_ := set $affinity "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list (dict "matchFields" .)))) }}{{ end }}
{{- if $topology.spread }}{{ dict "maxSkew" 1 "topologyKey" $key "nodeTaintsPolicy" "Honor" "labelSelector" $selector
    "whenUnsatisfiable" (ternary "DoNotSchedule" "ScheduleAnyway" ($topology.required | default false)) | toJson | printf "\ntopologySpreadConstraints: [%s]" }}{{ end }}
{{- if $topology.pack }}{{ $term := dict "topologyKey" $key "labelSelector" $selector }}
  {{- $_ := set $affinity "podAffinity" (ternary (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))
    (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) ($topology.required | default false)) }}{{ end }}
{{- if ne $key $host }}{{ $term := dict "topologyKey" $host "labelSelector" $selector }}
  {{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 1 "podAffinityTerm" $term))) }}{{ end }}
{{- with $affinity }}{{ toJson . | printf "\naffinity: %s" }}{{ end }}{{ end }}

{{- /* The variables by name, the user's over tfk8s' own; then the variables that identify the task. */}}
{{- define "tfk8s.env" }}{{ $ := first . }}{{ $job := last . }}{{ $env := dict "HOME" "/tmp" "TF_FORCE_GPU_ALLOW_GROWTH" "true" }}
{{- if not $job.gpus }}{{ $env = dict "HOME" "/tmp" "CUDA_VISIBLE_DEVICES" "-1" "NVIDIA_VISIBLE_DEVICES" "void" }}{{ end }}
{{- if $job.settings.program }}{{ $env = merge $env (dict "PYTHONUNBUFFERED" "1" "TF_CPP_MIN_LOG_LEVEL" "1" "TF_GRPC_DEFAULT_OPTIONS" "grpc.initial_reconnect_backoff_ms=100") }}{{ end }}
{{- range $name, $value := $.Values.env }}{{ $_ := set $env $name $value }}{{ end }}
{{- range $name, $value := $job.settings.env }}{{ $_ := set $env $name $value }}{{ end }}
{{- if kindIs "map" $env.PYTHONPATH }}{{ fail "env: PYTHONPATH can't come from a Secret or ConfigMap, because tfk8s adds its own files to it" }}{{ end }}
{{- $_ := set $env "PYTHONPATH" (hasKey $env "PYTHONPATH" | ternary (printf "/opt/tfk8s/tfk8s.zip:%s" $env.PYTHONPATH) "/opt/tfk8s/tfk8s.zip") }}
{{- range $name, $value := $env }}
{{- if kindIs "map" $value }}
- {name: {{ quote $name }}, valueFrom: { {{- ternary "secretKeyRef" "configMapKeyRef" (hasKey $value "secret") }}: {name: {{ $value.secret | default $value.config_map | quote }}, key: {{ quote $value.key }}}}}
{{- else }}{{ if gt (add (len $name) (len $value)) 131070 }}{{ fail (printf "env: variable %q is too long: with its value, at most 131071 bytes" $name) }}{{ end }}
- {name: {{ quote $name }}, value: {{ $value | replace "$" "$$" | quote }}}
{{- end }}{{ end }}
- {name: TFK8S_NAME, value: {{ quote $.Values.name }}}
- {name: TFK8S_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
{{- if (index . 1).programs }}{{ printf "\n- {name: TFK8S_JOBS, value: %q}" (index . 1).spec }}{{ end }}
- {name: TFK8S_PORT, value: "{{ ternary (index . 1).port $job.port (gt (len (index . 1).programs) 0) }}"}{{ with (index . 1).dispatcher }}{{ printf "\n- {name: TFK8S_DATA_SERVICE, value: \"grpc://%s\"}" . }}{{ end }}
- {name: TFK8S_JOB, value: {{ quote $job.name }}}
- {name: TFK8S_INDEX, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['{{ ternary "batch.kubernetes.io/job-completion-index" "apps.kubernetes.io/pod-index" (hasKey $job.settings "program") }}']"}}}{{ if and $job.gpus (not $job.settings.gpus_optional) (not $job.settings.kind) }}{{ printf "\n- {name: TFK8S_GPUS, value: %q}" (toString $job.gpus) }}{{ end }}{{ if (index . 1).readers }}{{ printf "\n- {name: TFK8S_METRICS_PORT, value: \"%d\"}" (int (index . 1).metricsPort) }}{{ end }}
{{- if $job.settings.program }}{{ if (index . 1).target }}{{ with first (index . 1).jobs }}
- {name: TFK8S_TARGET, value: "grpc://{{ .set }}-0.{{ $.Values.name }}.$(TFK8S_NAMESPACE).svc:{{ .port }}"}{{ end }}{{ end }}
- {name: TFK8S_VERDICT, value: /dev/termination-log}{{ with $.Values.grace }}{{ printf "\n- {name: TFK8S_GRACE, value: %q}" (include "tfk8s.seconds" .) }}{{ end }}{{ if $job.settings.tf1 }}{{ printf "\n- {name: TFK8S_TF1, value: \"1\"}" }}{{ end }}{{ else }}
{{- with $job.settings.preload }}{{ printf "\n- {name: TFK8S_PRELOAD, value: %q}" (join "," .) }}{{ end }}
{{- if (index . 1).watchesUse }}{{ printf "\n- {name: TFK8S_ACTIVITY_PORT, value: \"%d\"}" (int (index . 1).activityPort) }}{{ end }}{{ end }}{{ end }}
