{{- define "atoll.name" -}}
{{- default (ternary .Release.Name (printf "%s-atoll" .Release.Name) (contains "atoll" .Release.Name)) .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "atoll.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{/* The Secret of a process: list root name. */}}
{{- define "atoll.secret" -}}
{{- $root := index . 0 -}}
{{- default (include "atoll.name" $root) $root.Values.certificates.secretPrefix }}-{{ index . 1 }}
{{- end -}}

{{/* What selects the pods of a component: list root component. */}}
{{- define "atoll.selector" -}}
app.kubernetes.io/name: atoll
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The labels of an object of a component: list root component. */}}
{{- define "atoll.labels" -}}
{{ include "atoll.selector" . }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end -}}

{{/* How many pods of front proxies there may be: each has a name, certificates and a NATS user of its own. */}}
{{- define "atoll.proxies" -}}
{{- with .Values.frontProxy -}}
{{- ternary (max .replicas .autoscaling.maxReplicas) .replicas .autoscaling.enabled -}}
{{- end -}}
{{- end -}}

{{/* Every process of the site, as `atoll certs` takes them, a line each. */}}
{{- define "atoll.processes" -}}
{{- $name := include "atoll.name" . -}}
{{- $zone := printf "%s.svc" .Release.Namespace -}}
{{- range .Values.shards }}
shard/{{ .name }}={{ $name }}-shard-{{ .name }}.{{ $zone }}:6443
{{- end }}
{{- range $i := until (include "atoll.proxies" . | int) }}
front-proxy/front-proxy-{{ $i }}={{ $name }}-front-proxy.{{ $zone }}:6443,{{ $name }}-front-proxy
{{- end }}
{{- if .Values.cacheServer.enabled }}
{{- range $i := until (int .Values.cacheServer.replicas) }}
cache-server/cache-server-{{ $i }}={{ $name }}-cache-server.{{ $zone }}:6445
{{- end }}
{{- end }}
{{- if .Values.eventGateway.enabled }}
{{- range $i := until (int .Values.eventGateway.replicas) }}
event-gateway/event-gateway-{{ $i }}={{ $name }}-event-gateway.{{ $zone }}:6446
{{- end }}
{{- end }}
{{- if .Values.nats.enabled }}
{{- range $i := until 3 }}
nats-server/nats-{{ $i }}={{ $name }}-nats-{{ $i }}.{{ $name }}-nats.{{ $zone }}:4222,{{ $name }}-nats.{{ $zone }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Pods take what changed in who belongs to the site by a restart, one after the other. */}}
{{- define "atoll.membership" -}}
atoll.dev/processes: {{ include "atoll.processes" . | sha256sum | trunc 16 | quote }}
{{- end -}}

{{- define "atoll.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "atoll.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What all pods of a component have alike: list root component. */}}
{{- define "atoll.pod" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "atoll.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $root.Values.scheduling }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .spreadOver }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "atoll.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Probes of a process that serves HTTPS at the port `https`; a start may read a large store. */}}
{{- define "atoll.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* The number of a pod of a StatefulSet, which names its files. */}}
{{- define "atoll.index" -}}
- name: POD_INDEX
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end -}}
