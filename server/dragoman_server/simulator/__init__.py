"""The built-in simulator: scripted models that speak all protocols, so that everything works without a key.

`scripts` defines what each model does, as events of the core; `reply` turns a request into a reply with times;
`upstream` plays it in process and `app` over HTTP. Nothing is random, and the same request gets the same bytes.

It is as large as a small server, because clients are tested against it: it has a model for each thing that can happen
to a response.
"""

from dragoman_server.simulator.app import create_simulator_app
from dragoman_server.simulator.reply import SimulatedReply, reply_to
from dragoman_server.simulator.scripts import MODELS
from dragoman_server.simulator.upstream import SimulatedResponse, SimulatedUpstream

__all__ = [
    "MODELS",
    "SimulatedReply",
    "SimulatedResponse",
    "SimulatedUpstream",
    "create_simulator_app",
    "reply_to",
]
