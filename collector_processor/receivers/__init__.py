"""OTLP at the door: gRPC and HTTP."""

from collector_processor.receivers.admission import DoorRules
from collector_processor.receivers.grpc_receiver import GrpcReceiver
from collector_processor.receivers.http_receiver import HttpPatience, HttpReceiver, HttpRoom
from collector_processor.receivers.listening import ListenError, Receiver
from collector_processor.receivers.trimming import Trimmer
from collector_processor.tls import TlsFiles

__all__ = [
    "DoorRules",
    "GrpcReceiver",
    "HttpPatience",
    "HttpReceiver",
    "HttpRoom",
    "ListenError",
    "Receiver",
    "TlsFiles",
    "Trimmer",
]
