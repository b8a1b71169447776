"""Test the API against its own description: `make test-api`.

The description of a real gateway, which has the simulator as its upstream, is validated, and schemathesis sends what
the description allows and what it does not: with a client key, and the operator's requests with the admin key.
schemathesis.toml says which of its checks are off.

    python tests/api GATEWAY TOOLS [OPTION...]

GATEWAY and TOOLS are the folders with the commands dragoman, and schemathesis and the validator. Each OPTION is one of
`st run`.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ADMIN_KEY = "admin-0123456789-0123456789-0123456789-key"
CONFIG = f"""
[server]
secret = "secret-0123456789-0123456789-0123456789"
admin_key = "{ADMIN_KEY}"
account_store = "sqlite"
account_store_path = "accounts.db"
stored_keys = true
response_store = "memory"
record = "recordings"
"""
START_S = 30
# It has no end, so nothing could be compared with a description.
ENDLESS = "/admin/events"


def request(url: str, key: str, body: object = None) -> bytes:
    """Return the body of a response."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
        return bytes(response.read())


def client_key(url: str) -> str:
    """Return a client key, as soon as the gateway makes one."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return str(json.loads(request(f"{url}/admin/keys", ADMIN_KEY, {"name": "api"}))["key"])
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main(gateway: Path, tools: Path, options: Sequence[str], port: int = 18_431) -> int:
    url, statuses = f"http://127.0.0.1:{port}", []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dragoman.toml").write_text(CONFIG)
        (folder / "dragoman.toml").chmod(0o600)
        with (folder / "log").open("wb") as log:
            serve = [gateway / "dragoman", "serve", "--config", "dragoman.toml", "--port", str(port)]
            server = subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log)
        try:
            key = client_key(url)
            description = folder / "openapi.json"
            description.write_bytes(request(f"{url}/openapi.json", key))
            statuses.append(subprocess.run([tools / "openapi-spec-validator", description]).returncode)
            config = Path(__file__).with_name("schemathesis.toml")
            settings = ["--config-file", config, "run", *options, description]
            # The operator's last, because they revoke the client key.
            for tag, sent in (("protocols", key), ("gateway", key), ("operator", ADMIN_KEY)):
                chosen = ["--url", url, "--include-tag", tag, "--exclude-path", ENDLESS]
                command = [tools / "st", *settings, *chosen, "--header", f"Authorization: Bearer {sent}"]
                environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": name}
                statuses.append(subprocess.run(command, cwd=folder, env=environment).returncode)
        finally:
            server.terminate()
            server.wait()
        failures = [line for line in (folder / "log").read_text().splitlines() if '"level": "error"' in line]
        sys.stderr.write("\n".join(failures))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute(), sys.argv[3:]))
