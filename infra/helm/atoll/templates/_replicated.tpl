{{/*
A component of several pods, of which each has certificates and a NATS user of its own: a StatefulSet whose pods find
their files by their number. `identities` is how many there may be, `replicas` 0 leaves the count to an autoscaler.
Takes a dict: root, component, directoryFlag, port, replicas, identities, values; more: arguments of its own, serving:
the Secret of another serving certificate.
*/}}
{{- define "atoll.replicated" -}}
{{- $name := include "atoll.name" .root -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}-{{ .component }}
  labels:
    {{- include "atoll.labels" (list .root .component) | nindent 4 }}
spec:
  {{- with .replicas }}
  replicas: {{ . }}
  {{- end }}
  podManagementPolicy: Parallel
  serviceName: {{ $name }}-{{ .component }}
  selector:
    matchLabels:
      {{- include "atoll.selector" (list .root .component) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "atoll.selector" (list .root .component) | nindent 8 }}
      annotations:
        {{- include "atoll.membership" .root | nindent 8 }}
    spec:
      {{- include "atoll.pod" (list .root .component) | nindent 6 }}
      terminationGracePeriodSeconds: 60
      containers:
        - name: {{ .component }}
          image: {{ include "atoll.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [atoll, {{ .component }}]
          args:
            - --config=/etc/atoll/{{ .component }}-$(POD_INDEX)/settings.yaml
            - {{ .directoryFlag }}=/var/lib/atoll
            - --bind-address=0.0.0.0
            {{- range .more }}
            - {{ . }}
            {{- end }}
            {{- range .values.args }}
            - {{ . | quote }}
            {{- end }}
          env:
            {{- include "atoll.index" .root | nindent 12 }}
          ports:
            - {name: https, containerPort: {{ .port }}}
          {{- include "atoll.probes" .root | nindent 10 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- include "atoll.containerSecurity" .root | nindent 12 }}
          volumeMounts:
            - {name: copies, mountPath: /var/lib/atoll}
            - {name: tmp, mountPath: /tmp}
            {{- with .serving }}
            - {name: serving, mountPath: /etc/atoll/serving, readOnly: true}
            {{- end }}
            {{- range $i := until (int .identities) }}
            - {name: files-{{ $i }}, mountPath: /etc/atoll/{{ $.component }}-{{ $i }}, readOnly: true}
            {{- end }}
      volumes:
        # What is here is read again from the streams if it is lost.
        - name: copies
          emptyDir: {}
        - name: tmp
          emptyDir: {}
        {{- with .serving }}
        - name: serving
          secret:
            secretName: {{ . }}
            defaultMode: 0440
        {{- end }}
        {{- range $i := until (int .identities) }}
        - name: files-{{ $i }}
          secret:
            secretName: {{ include "atoll.secret" (list $.root (printf "%s-%d" $.component $i)) }}
            defaultMode: 0440
        {{- end }}
{{- end -}}

{{/* Never all pods of a component at once: list root component. */}}
{{- define "atoll.disruption" -}}
{{- $root := index . 0 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "atoll.name" $root }}-{{ index . 1 }}
  labels:
    {{- include "atoll.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "atoll.selector" . | nindent 6 }}
{{- end -}}
