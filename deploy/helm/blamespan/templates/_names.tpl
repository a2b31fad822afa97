{{- define "blamespan.name" -}}
{{- if contains "blamespan" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-blamespan" (.Release.Name | trunc 30 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "blamespan.selector" -}}
app.kubernetes.io/name: blamespan
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "blamespan.labels" -}}
{{ include "blamespan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{/* Labels of pods; the chart's go before podLabels, which the schema keeps apart. */}}
{{- define "blamespan.podLabels" -}}
{{ include "blamespan.labels" . }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Empty: the namespace's default. */}}
{{- define "blamespan.serviceAccount" -}}
{{- $account := .Values.serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (include "blamespan.name" .) -}}
{{- else -}}
{{- $account.name -}}
{{- end -}}
{{- end -}}

{{/* The Service that has the pages. */}}
{{- define "blamespan.pages" -}}
{{- include "blamespan.name" . }}{{ if .Values.web.enabled }}-web{{ end }}
{{- end -}}

{{/* The host of webUrl, without its port. Given: root and key, for the error. */}}
{{- define "blamespan.host" -}}
{{- $url := required (printf "%s.enabled needs webUrl: expected the address under which people open the pages" .key) .root.Values.webUrl -}}
{{- (urlParse $url).hostname -}}
{{- end -}}

{{- define "blamespan.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest | quote -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote -}}
{{- end -}}
{{- end -}}

{{- define "blamespan.secret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-token" (include "blamespan.name" .)) -}}
{{- end -}}

{{- define "blamespan.scheme" -}}
{{- if .Values.tls.enabled }}https{{ else }}http{{ end -}}
{{- end -}}

