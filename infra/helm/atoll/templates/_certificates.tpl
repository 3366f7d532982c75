{{/* What runs before installations and upgrades: list weight. */}}
{{- define "atoll.certificatesHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: before-hook-creation
helm.sh/hook-weight: {{ . | quote }}
{{- end }}

{{/* The pod that makes the Secrets of the site. */}}
{{- define "atoll.certificatesPod" -}}
metadata:
  labels:
    {{- include "atoll.selector" (list . "certificates") | nindent 4 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "atoll.name" . }}-certificates
  {{- include "atoll.pod" (list . "certificates") | replace "automountServiceAccountToken: false" "automountServiceAccountToken: true" | nindent 2 }}
  containers:
    - name: certificates
      image: {{ include "atoll.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [atoll, certs, secrets]
      args:
        - --directory=/work/site
        - --namespace={{ .Release.Namespace }}
        - --name-prefix={{ trimSuffix "-" (include "atoll.secret" (list . "")) }}
        - --external-url={{ .Values.externalUrl }}
        {{- with .Values.eventGateway.externalUrl }}
        - --events-url={{ . }}
        {{- end }}
        - --installed-at=/etc/atoll/{name}
        {{- if .Values.monitoring.serviceMonitor.enabled }}
        - --with-monitoring
        {{- end }}
        {{- range splitList "\n" (trim (include "atoll.processes" .)) }}
        - {{ . }}
        {{- end }}
      resources:
        requests: {cpu: 100m, memory: 128Mi}
        limits: {memory: 256Mi}
      securityContext:
        {{- include "atoll.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: work, mountPath: /work}
        - {name: work, mountPath: /tmp, subPath: tmp}
  volumes:
    - name: work
      emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}
