{{/* What scales pods. Given: root, pod (its values), component, kind and name of what is scaled, pods (a regular
expression of their names), and behavior, for those whose number should not change often. */}}
{{- define "blamespan.scaler" -}}
{{- $scaling := .pod.autoscaling }}
{{- if (default dict $scaling.keda).enabled }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels:
    {{- include "blamespan.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  scaleTargetRef:
    kind: {{ .kind }}
    name: {{ .name }}
  minReplicaCount: {{ $scaling.minReplicas }}
  maxReplicaCount: {{ $scaling.maxReplicas }}
  {{- with .behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ $scaling.keda.prometheus | quote }}
        # The highest value, not the sum: analyzers all show the same jobs.
        query: {{ printf "max(blamespan_oldest_actionable_age_seconds{namespace=%q, pod=~%q})" .root.Release.Namespace .pods | quote }}
        threshold: {{ $scaling.keda.targetAgeSeconds | quote }}
      metricType: AverageValue
{{- else }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels:
    {{- include "blamespan.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ .name }}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  {{- with .behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $scaling.targetCPUUtilizationPercentage }}
{{- end }}
{{- end -}}
