"""The gateway for any ASGI server: `hypercorn dragoman_server.asgi:app`.

It is configured by environment variables and a TOML file, as `dragoman serve` is. Settings of the server itself, above
all where it listens, have no effect.
"""

import os
from functools import partial

from dragoman_server.app import create_app
from dragoman_server.config.loader import load
from dragoman_server.config.reload import ConfigReloader
from dragoman_server.log import configure_logging
from dragoman_server.settings.problems import ConfigError

try:
    _loaded = load(environ=os.environ)
except ConfigError as error:
    # A server prints a traceback of every other error that is raised while it imports an application.
    raise SystemExit(str(error)) from None
_settings = _loaded.settings
configure_logging(_settings.server.log_level, _settings.server.log_format)

app = create_app(_settings)
# For POST /admin/reload. SIGHUP is the server's.
_load = partial(load, environ=os.environ, path=_loaded.path)
app.reloader = ConfigReloader(_settings, _load, app.reload).reload
