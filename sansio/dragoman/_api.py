"""The names of `dragoman` itself, which __init__ imports when the first of them is used."""

from dragoman._engine.errors import translate_error
from dragoman._engine.event_reader import NEED_DATA, EventReader
from dragoman._engine.event_writer import EventWriter
from dragoman._engine.fan_out import FanOut
from dragoman._engine.keepalive import Keepalive
from dragoman._engine.relay import Relay
from dragoman._engine.request import RequestTranslator, TranslatedRequest
from dragoman._engine.response import ResponseTranslator
from dragoman._engine.response_machine import Outcome, ResponseMachine
from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.events import StopReason, Usage
from dragoman._ir.losses import Ledger, Loss, LossCode, LossPolicy
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import LocalProtocolError, ProtocolError, RemoteProtocolError, RequestRefused
from dragoman._wire.splice import RequestHead, peek
from dragoman.codec import Capabilities
from dragoman.protocols import PROTOCOLS, UPSTREAMS

__all__ = [
    "NEED_DATA",
    "PROTOCOLS",
    "UPSTREAMS",
    "Capabilities",
    "ErrorKind",
    "EventReader",
    "EventWriter",
    "FanOut",
    "Keepalive",
    "Ledger",
    "LocalProtocolError",
    "Loss",
    "LossCode",
    "LossPolicy",
    "Outcome",
    "ProtocolError",
    "Relay",
    "RemoteProtocolError",
    "RequestHead",
    "RequestRefused",
    "RequestTranslator",
    "ResponseMachine",
    "ResponseTranslator",
    "Signer",
    "StopReason",
    "TranslatedRequest",
    "Usage",
    "WireError",
    "estimate_tokens",
    "peek",
    "translate_error",
]
