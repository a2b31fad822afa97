{{/* What all pods share. */}}
{{- define "blamespan.podSecurity" -}}
automountServiceAccountToken: false
{{- with include "blamespan.serviceAccount" . }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "blamespan.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "blamespan.probes" -}}
{{- /* Of (dict "root" . "port" NAME). */ -}}
{{- $scheme := include "blamespan.scheme" .root | upper -}}
{{- $port := .port -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end -}}

{{- define "blamespan.env" -}}
- name: HOME # the root is read-only; libraries that keep something beside us find a place
  value: /tmp
{{- with .Values.store.existingSecret }}
- name: BLAMESPAN_STORE_URL
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: url
{{- end }}
- name: BLAMESPAN_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "blamespan.secret" . | quote }}
      key: token
{{- if .Values.auth.ownMetricsToken }}
- name: BLAMESPAN_METRICS_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "blamespan.secret" . | quote }}
      key: metrics-token
{{- end }}
- name: BLAMESPAN_WEB_LISTEN
  value: 0.0.0.0:8500
{{- with .Values.webUrl }}
- name: BLAMESPAN_WEB_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.tls.enabled }}
- name: BLAMESPAN_TLS_CERTIFICATE
  value: /etc/blamespan/tls/tls.crt
- name: BLAMESPAN_TLS_KEY
  value: /etc/blamespan/tls/tls.key
{{- if .Values.tls.requireClientCertificates }}
- name: BLAMESPAN_TLS_CLIENT_CA
  value: /etc/blamespan/tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.ranker.configMap }}
- name: BLAMESPAN_RANKER
  value: /etc/blamespan/ranker/ranker.json
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name | quote }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* Where acknowledged spans are kept, if not on the processor's disk. */}}
{{- define "blamespan.kafkaEnv" -}}
{{- $kafka := .Values.kafka }}
{{- if $kafka.brokers }}
{{- $user := "" }}
{{- if hasPrefix "sasl_" $kafka.security }}
{{- $user = "$(KAFKA_USERNAME):$(KAFKA_PASSWORD)@" }}
- name: KAFKA_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ $kafka.existingSecret | quote }}
      key: username
- name: KAFKA_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $kafka.existingSecret | quote }}
      key: password
{{- end }}
- name: BLAMESPAN_QUEUE # the kubelet fills in user and password
  value: {{ printf "kafka://%s%s?%s" $user $kafka.brokers (include "blamespan.kafkaProperties" .) | quote }}
{{- end }}
{{- end -}}

{{- define "blamespan.kafkaProperties" -}}
{{- $kafka := .Values.kafka }}
{{- $given := list (printf "topics=%s" $kafka.topics) (printf "group.id=%s" ($kafka.group | urlquery)) (printf "security.protocol=%s" $kafka.security) }}
{{- if hasPrefix "sasl_" $kafka.security }}
{{- $given = append $given (printf "sasl.mechanism=%s" $kafka.saslMechanism) }}
{{- end }}
{{- if $kafka.tls.existingSecret }}
{{- $given = append $given "ssl.ca.location=/etc/blamespan/kafka/ca.crt" }}
{{- if $kafka.tls.clientCertificate }}
{{- $given = concat $given (list "ssl.certificate.location=/etc/blamespan/kafka/tls.crt" "ssl.key.location=/etc/blamespan/kafka/tls.key") }}
{{- end }}
{{- end }}
{{- join "&" $given }}
{{- end -}}

{{/* What decides how runs are analysed, for the pods that do. */}}
{{- define "blamespan.analysisEnv" -}}
- name: BLAMESPAN_METHOD
  value: {{ .Values.method | quote }}
- name: BLAMESPAN_MODEL
  value: {{ .Values.model | quote }}
- name: BLAMESPAN_BUDGET_USD_PER_HOUR
  value: {{ .Values.budgetUsdPerHour | quote }}
- name: BLAMESPAN_BUDGET_USD_PER_RUN
  value: {{ .Values.budgetUsdPerRun | quote }}
{{- end -}}

{{/* Given: root, and whether the pod asks the model (asks). */}}
{{- define "blamespan.envFrom" -}}
{{- $keys := ternary .root.Values.modelKeys.existingSecret "" .asks }}
{{- if or $keys .root.Values.extraEnvFrom }}
envFrom:
  {{- with $keys }}
  - secretRef:
      name: {{ . | quote }}
  {{- end }}
  {{- with .root.Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "blamespan.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/blamespan/tls
  readOnly: true
{{- end }}
{{- if .Values.ranker.configMap }}
- name: ranker
  mountPath: /etc/blamespan/ranker
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "blamespan.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ required "tls.existingSecret: expected the name of a Secret with tls.crt, tls.key and ca.crt" .Values.tls.existingSecret | quote }}
    defaultMode: 0440
{{- end }}
{{- if .Values.ranker.configMap }}
- name: ranker
  configMap:
    name: {{ .Values.ranker.configMap | quote }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods go. Given: root, pod (its values) and component. */}}
{{- define "blamespan.placement" -}}
{{- $given := . -}}
{{- with .pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - labelSelector:
      matchLabels:
        {{- include "blamespan.selector" $given.root | nindent 8 }}
        app.kubernetes.io/component: {{ $given.component }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
