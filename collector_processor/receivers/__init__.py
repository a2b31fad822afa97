"""OTLP receivers over gRPC and HTTP: admission, limits, decompression, intake."""

from collector_processor.otlp.tls import TlsFiles
from collector_processor.receivers.admission import AdmissionRules, Receiver
from collector_processor.receivers.grpc_receiver import GrpcReceiver
from collector_processor.receivers.http_receiver import HttpLimits, HttpReceiver, HttpTimeouts
from collector_processor.receivers.overload import Trimmer

__all__ = [
    "AdmissionRules", "GrpcReceiver", "HttpLimits", "HttpReceiver", "HttpTimeouts", "Receiver",
    "TlsFiles", "Trimmer",
]  # fmt: skip
