{{- /* The job file with its defaults, as JSON: {labels, spec, port, ports, ttl, limits, keeper, watchesUse, drained, activityPort, scriptPort, readers, metricsPort, restartsPort, jobs, servers, programs, target, dispatcher, gang, allTasks, priority, claims}, the master's job first.
       It rejects what values.schema.json can't, with the messages of `tfk8s validate`. */}}
{{- define "tfk8s.cluster" }}
{{- if ne (.Values.namespace | default .Release.Namespace) .Release.Namespace }}
  {{- fail (printf "namespace: the job file has %[1]q, but Helm uses %[2]q: add --namespace %[1]s" .Values.namespace .Release.Namespace) }}{{ end }}
{{- $names := keys .Values.jobs | sortAlpha }}{{ $candidates := without $names "evaluator" }}{{ $preferred := list }}{{ $data := list }}
{{- range $names }}{{ if include "tfk8s.isData" (get $.Values.jobs .) }}{{ $data = append $data . }}{{ $candidates = without $candidates . }}{{ end }}{{ end }}
{{- if not $candidates }}{{ fail (printf "jobs: %s alone can't be a cluster: sessions never connect to it" (ternary "an evaluator" "tf.data's service" (has "evaluator" $names))) }}{{ end }}
{{- if gt (len $data) 1 }}{{ fail (printf "jobs.%s.kind: job %q runs tf.data's service already" (index $data 1) (first $data)) }}{{ end }}
{{- $servers := list }}{{ range $candidates }}{{ if not (include "tfk8s.program" (get $.Values.jobs .)) }}{{ $servers = append $servers . }}{{ end }}{{ end }}
{{- range list "master" "chief" "worker" }}{{ if has . ($servers | default $candidates) }}{{ $preferred = append $preferred . }}{{ end }}{{ end }}
{{- $master := .Values.master | default (concat $preferred $servers $candidates | first) }}{{ if not (has $master $candidates) }}
  {{- fail (printf "master: there is no job %q that sessions can connect to; expected one of %s" $master (join ", " $candidates)) }}{{ end }}
{{- $target := has $master $servers }}{{ $dispatcher := "" }}
{{- if and .Values.master (not $target) }}{{ fail (printf "master: sessions can't connect to a task of %q, which runs a program" $master) }}{{ end }}
{{- $labels := dict "app.kubernetes.io/name" "tfk8s" "app.kubernetes.io/instance" .Values.name }}{{ $seen := dict }}
{{- $claims := dict }}{{ $default := int (.Values.port | default 2222) }}{{ $jobs := list }}{{ $spec := list }}{{ $sizes := list }}{{ $ports := list }}{{ $serverJobs := list }}{{ $programs := list }}{{ $tasksOf := dict }}{{ $all := 0 }}
{{- range $name := prepend (without $names $master) $master }}
  {{- $settings := get $.Values.jobs $name }}{{ $label := include "tfk8s.label" $name }}{{ $set := printf "%s-%s" $.Values.name $label }}
  {{- if kindIs "slice" $settings }}{{ fail (printf "jobs.%s: these servers already run at the addresses in the job file" $name) }}{{ end }}
  {{- if not (kindIs "map" $settings) }}{{ $settings = dict "tasks" $settings }}{{ end }}
  {{- with get $seen $label }}{{ fail (printf "jobs: %q and %q would have the same name in Kubernetes: %q" . $name $label) }}{{ end }}{{ $_ := set $seen $label $name }}
  {{- if gt (len $set) 52 }}{{ fail (printf "name: StatefulSet %q would have %d characters; at most 52 are allowed" $set (len $set)) }}{{ end }}
  {{- $image := required (printf "image: job %q has no image" $name) ($settings.image | default $.Values.image) }}
  {{- $tasks := int ($settings.tasks | default 1) }}{{ $port := int ($settings.port | default $default) }}{{ $ports = append $ports $port | uniq }}
  {{- $spec = append $spec (printf "%s=%d%s" $name $tasks (eq $port $default | ternary "" (printf ":%d" $port))) }}{{ $sizes = append $sizes (printf "%s=%d:%d" $name $tasks $port) }}
  {{- $bucket := dict }}{{ range $volume := concat ($.Values.volumes | default list) ($settings.volumes | default list) }}
    {{- if .bucket }}{{ $bucket = dict "gke-gcsfuse/volumes" "true" }}{{ end }}
    {{- if .create }}{{ $claim := dict "size" (include "tfk8s.text" .create) "access" (.access | default "ReadWriteOnce") "class" (.storage_class | default "") }}
      {{- with get $claims .claim }}{{ if ne (toJson .) (toJson $claim) }}{{ fail (printf "volumes: claim %q is made twice, with other settings" $volume.claim) }}{{ end }}{{ end }}
      {{- $_ := set $claims .claim $claim }}{{ end }}{{ end }}
  {{- $keepsState := has $name (list $master "chief" "master" "ps") }}
  {{- $job := dict "name" $name "set" $set "tasks" $tasks "port" $port "image" $image "settings" $settings
      "labels" (merge (dict "app.kubernetes.io/component" $label) $labels) "keepsState" $keepsState "drained" (and $keepsState (eq ($.Values.drain | default "block") "idle") (not $settings.program))
      "podLabels" (merge (dict) ($settings.labels | default dict) ($.Values.labels | default dict))
      "podAnnotations" (merge (dict) $bucket ($settings.annotations | default dict) ($.Values.annotations | default dict))
      "gpus" (int $settings.gpus) "gpu" ($settings.gpu_resource | default "nvidia.com/gpu")
      "cpu" (include "tfk8s.text" ($settings.cpu | default "100m")) "memory" (include "tfk8s.sum" (list ($settings.memory | default "512Mi") $settings.shm)) }}{{ $jobs = append $jobs $job }}{{ $all = add $all $tasks }}
  {{- if has $name $data }}{{ $dispatcher = printf "%s-0.%s.$(TFK8S_NAMESPACE).svc:%d" $set $.Values.name $port }}{{ if $settings.program }}{{ fail (printf "jobs.%s.kind: job %[1]q can't run a program and tf.data's service" $name) }}{{ end }}
    {{- if lt $tasks 2 }}{{ fail (printf "jobs.%s: job %[1]q needs a dispatcher and a worker" $name) }}{{ end }}{{ if $settings.preload }}{{ fail (printf "jobs.%s.preload: preload has no effect on a job that runs tf.data's service" $name) }}{{ end }}{{ end }}
  {{- with $settings.program }}{{ $programs = append $programs $job }}{{ $_ := set $tasksOf $name $tasks }}
    {{- if and (hasSuffix ".py" (first .)) (not (hasPrefix "/" (first .))) }}
      {{- fail (printf "jobs.%s.program: only `tfk8s up` brings the script %q to the pods: put it into the image, and write [python3, /PATH/%s]" $name (first .) (base (first .))) }}{{ end }}
    {{- if $settings.preload }}{{ fail (printf "jobs.%s.preload: preload has no effect on a job that runs a program" $name) }}{{ end }}{{ if and $settings.tf1 (not (regexMatch "^(.*/)?python(3([.][0-9]+)?)? (-[bBOqsuv]+ |-[WX] ?[^ ]+ )*(-m |[^ ]*[.]py )" (printf "%s " (join " " .)))) }}{{ fail (printf "jobs.%s.tf1: tf1 needs a program of Python, python3 with -m MODULE or FILE.py" $name) }}{{ end }}
  {{- else }}{{ if $settings.tf1 }}{{ fail (printf "jobs.%s.tf1: tf1 has no effect on a job without a program" $name) }}{{ end }}{{ $serverJobs = append $serverJobs $job }}{{ end }}
{{- end }}
{{- if .Values.queue }}{{ if gt (len $jobs) 18 }}{{ fail "queue: Kueue takes a cluster of at most 18 jobs" }}{{ end }}{{ $pre := "kueue.x-k8s.io" }}{{ range $jobs }}{{ $_ := set . "podLabels" (mergeOverwrite (dict) .podLabels (dict (printf "%s/queue-name" $pre) $.Values.queue (printf "%s/pod-group-name" $pre) $.Values.name (printf "%s/managed" $pre) "true")) }}{{ $_ := set . "podAnnotations" (mergeOverwrite (dict) .podAnnotations (dict (printf "%s/pod-group-total-count" $pre) (toString $all) (printf "%s/role-hash" $pre) (include "tfk8s.label" .name) (printf "%s/pod-suspending-parent" $pre) "tfk8s") (empty $serverJobs | ternary dict (dict (printf "%s/pod-group-serving" $pre) "true"))) }}{{ end }}{{ end }}{{ $kinds := list }}{{ $grouped := false }}{{ range $jobs }}{{ $kind := dict "priorityClassName" .settings.priority_class }}{{ range list $.Values.pod .settings.pod }}{{ with . }}{{ $kind = mergeOverwrite $kind (pick . "priorityClassName" "schedulerName") }}{{ $grouped = or $grouped (hasKey . "schedulingGroup") }}{{ end }}{{ end }}{{ $kinds = append $kinds (toJson $kind) | uniq }}{{ end }}{{ if .Values.gang }}{{ if .Values.queue }}{{ fail "gang: Kueue admits all tasks of a cluster in a queue together" }}{{ end }}{{ if gt (len $kinds) 1 }}{{ fail "gang: the jobs differ in priority or scheduler" }}{{ end }}{{ end }}{{ $served := and (.Capabilities.APIVersions.Has "scheduling.k8s.io/v1beta1/PodGroup") (eq (len $kinds) 1) (not $grouped) (not .Values.queue) }}{{ $gang := kindIs "bool" .Values.gang | ternary .Values.gang $served }}
{{- if and (kindIs "map" .Values.run) (not $programs) }}{{ fail "run: a run needs a job with a program" }}{{ end }}
{{- with (.Values.run).success }}{{ $parts := splitn "/" 2 . }}{{ $count := get $tasksOf $parts._0 | default 0 | int }}
  {{- if not (or (hasKey $tasksOf .) (and (regexMatch "^(0|[1-9][0-9]*)$" (toString $parts._1)) (lt (int $parts._1) $count))) }}{{ fail (printf "run.success: %q names no program" .) }}{{ end }}{{ end }}
{{- $idle := dict "remove" .Values.idle }}{{ if kindIs "map" .Values.idle }}{{ $idle = .Values.idle }}{{ end }}{{ $limits := dict }}{{ range $name, $value := dict "TFK8S_MAX_DURATION" .Values.max_duration "TFK8S_IDLE" (get $idle "remove") "TFK8S_SUSPEND" (get $idle "suspend") }}{{ with $value }}{{ $_ := set $limits $name (include "tfk8s.seconds" .) }}{{ end }}{{ end }}
{{- with $limits.TFK8S_SUSPEND }}{{ with $limits.TFK8S_IDLE }}{{ if ge (int64 $limits.TFK8S_SUSPEND) (int64 .) }}{{ fail "idle: the cluster would be removed before it is suspended" }}{{ end }}{{ end }}{{ with $.Values.queue }}{{ $_ := set $limits "TFK8S_QUEUE" . }}{{ end }}{{ end }}
{{- $drained := list }}{{ range $jobs }}{{ if .drained }}{{ $drained = append $drained . }}{{ end }}{{ end }}{{ $watchesUse := or (hasKey .Values "idle") (gt (len $drained) 0) }}
{{- $port := int (first $jobs).port }}{{ $scriptPort := ternary (add $port 100) (sub $port 1000) (le (add $port 132) 65535) | int }}{{ $highest := 0 }}{{ $used := untilStep $scriptPort (add $scriptPort 32 | int) 1 | concat $ports }}{{ $pods := list .Values.pod }}{{ range $ports }}{{ $highest = max $highest . | int }}{{ end }}
{{- range $jobs }}{{ $pods = append $pods .settings.pod }}{{ end }}
{{- range $pods | compact }}{{ range concat (.containers | default list) (.initContainers | default list) }}
  {{- range .ports }}{{ $used = append $used (int .containerPort) }}{{ end }}{{ end }}{{ end }}
{{- $count := add 3 (len $used) | int }}{{ $up := untilStep (add1 $highest | int) (min 65536 (add1 $highest | add $count) | int) 1 }}
{{- $free := list }}{{ range untilStep (sub $highest 1 | int) (sub $highest (add1 $count) | int) -1 | concat $up }}
  {{- if not (has . $used) }}{{ $free = append $free . }}{{ end }}{{ end }}{{ $readers := list }}{{ with .Values.metrics }}{{ $readers = kindIs "map" . | ternary . (dict "from" (list (dict "pods" (dict "app.kubernetes.io/name" "prometheus")))) | dig "from" list }}{{ end }}
{{- dict "labels" $labels "spec" (join "," $spec) "sizes" (join "," $sizes) "port" $default "ports" $ports "ttl" (include "tfk8s.seconds" (.Values.ttl | default 3600))
      "limits" $limits "keeper" (or $watchesUse (gt (len $limits) 0)) "watchesUse" $watchesUse "drained" $drained "activityPort" (first $free) "scriptPort" $scriptPort "readers" $readers "metricsPort" (index $free 1) "restartsPort" (and (gt (len $programs) 0) (has (.Values.run | default dict).restart_scope (list "job" "cluster")) (ne (toString .Values.run.restart_on) "never") | ternary (index $free 2) 0) "jobs" $jobs "servers" $serverJobs "programs" $programs "target" $target "dispatcher" $dispatcher "gang" $gang "allTasks" $all "priority" (get (first $kinds | fromJson) "priorityClassName") "claims" $claims | toJson }}{{ end }}

{{- /* Texts that are not empty if a job has a program, or runs tf.data's service. */}}
{{- define "tfk8s.program" }}{{ if kindIs "map" . }}{{ join " " .program }}{{ end }}{{ end }}
{{- define "tfk8s.isData" }}{{ if kindIs "map" . }}{{ with .kind }}{{ . }}{{ end }}{{ end }}{{ end }}

{{- /* A duration in seconds. */}}
{{- define "tfk8s.seconds" }}{{ $text := include "tfk8s.text" . }}{{ $unit := get (dict "m" 60 "h" 3600 "d" 86400) (regexFind ".$" $text) }}
{{- mul (trimAll "smhd" $text) ($unit | default 1) }}{{ end }}

{{- /* A job's name as a part of names in Kubernetes. */}}
{{- define "tfk8s.label" }}{{ if regexMatch "^[a-z][a-z0-9]*$" . }}{{ . }}{{ else }}
{{- regexReplaceAll "-+$" (lower . | replace "_" "-") "" }}-{{ sha256sum . | trunc 4 }}{{ end }}{{ end }}

{{- /* A number or text as text: Helm reads numbers as float64 or int64, and would print 1e+06. */}}
{{- define "tfk8s.text" }}{{ toJson . | trimAll "\"" }}{{ end }}

{{- /* The sum of two amounts of bytes, of which the second may be absent, in the largest of Gi, Mi and bytes. */}}
{{- define "tfk8s.sum" }}{{ $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- if last . }}{{ $bytes := 0 }}
  {{- range . }}{{ $text := include "tfk8s.text" . }}{{ $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" $text }}
    {{- $bytes = addf $bytes (mulf (float64 $number) (float64 (get $units (trimPrefix $number $text)))) }}{{ end }}
  {{- $bytes = int64 (ceil $bytes) }}{{ $sum := toString $bytes }}
  {{- range list "Mi" "Gi" }}{{ $unit := int64 (get $units .) }}{{ if not (mod $bytes $unit) }}{{ $sum = printf "%d%s" (div $bytes $unit) . }}{{ end }}{{ end }}
  {{- $sum }}{{ else }}{{ include "tfk8s.text" (first .) }}{{ end }}{{ end }}

{{- /* The head of an object: list $ VERSION KIND NAME LABELS ANNOTATIONS. */}}
{{- define "tfk8s.object" }}{{ $ := first . }}
{{- $chart := dict "app.kubernetes.io/managed-by" "Helm" "helm.sh/chart" (printf "%s-%s" $.Chart.Name $.Chart.Version) }}
---
apiVersion: {{ index . 1 }}
kind: {{ index . 2 }}
metadata:
  name: {{ index . 3 | quote }}
  {{- with $.Values.namespace }}{{ printf "\n  namespace: %q" . }}{{ end }}
  labels: {{- merge $chart (index . 4) | toYaml | nindent 4 }}
  {{- with last . }}{{ printf "\n  annotations: %s" (include "tfk8s.json" . | nindent 4) }}{{ end }}{{ end }}
