"""The audit log: who has changed keys, accounts or the configuration while the gateway runs, and when.

Each change is a line of the logger `dragoman.audit`, and with `server.audit_log` also one of JSON in that file,
whatever the log level is. There is never a key or a hash in it.
"""

import errno
import json
import logging
import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio.to_thread

from dragoman.errors import mask_value
from dragoman_server.settings import Settings

_log = logging.getLogger("dragoman.audit")


def audit(
    settings: Settings, action: str, name: str, *, by: str, address: str | None = None, **details: object
) -> None:
    """Record a change that was made. May wait for the disk.

    action: as `key made`. name: of what has changed. by: who changed it. address: where the request came from.
    """
    row = {"action": action, "name": name, "by": by, "address": address, **details}
    row = {key: value for key, value in row.items() if value not in (None, [], ())}
    _log.info("%s", action, extra={"dragoman": row})
    if settings.server.audit_log is None:
        return
    text = json.dumps(mask_value({"time": datetime.now(UTC).isoformat(), **row}, settings.mask), default=str)
    line = f"{text}\n".encode()
    try:
        # Opened for each line, so that it may be rotated. One write, because other processes append to it too.
        descriptor = os.open(settings.server.audit_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(descriptor, line)
            if written < len(line):  # nothing may be joined to half a line
                end = os.lseek(descriptor, 0, os.SEEK_CUR)
                if os.fstat(descriptor).st_size == end:  # no other process has written since
                    os.ftruncate(descriptor, end - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
    except OSError as error:
        _log.error("the audit log %s lacks a line: %s", settings.server.audit_log, error.strerror)


async def audit_off_loop(settings: Settings, action: str, name: str, **details: Any) -> None:
    """Do the same in a thread if there is a file. details: see audit()."""
    write = partial(audit, settings, action, name, **details)
    if settings.server.audit_log is None:
        write()
    else:
        await anyio.to_thread.run_sync(write)
