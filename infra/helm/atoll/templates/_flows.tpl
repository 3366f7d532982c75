{{/* Rules of network policies that several components have. */}}
{{- define "atoll.toShards" -}}
- ports: [{protocol: TCP, port: 6443}]
  to:
    - podSelector:
        matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}, atoll.dev/role: shard}
{{- end -}}

{{- define "atoll.toNats" -}}
- ports: [{protocol: TCP, port: 4222}]
  {{- if .Values.nats.enabled }}
  to:
    - podSelector:
        matchLabels:
          {{- include "atoll.selector" (list . "nats") | nindent 10 }}
  {{- end }}
{{- end -}}

{{/* list root port */}}
{{- define "atoll.monitoringEnters" -}}
{{- $port := index . 1 -}}
{{- with (index . 0).Values.networkPolicy.monitoring -}}
- ports: [{protocol: TCP, port: {{ $port }}}]
  from:
    {{- toYaml . | nindent 4 }}
{{- end -}}
{{- end -}}
