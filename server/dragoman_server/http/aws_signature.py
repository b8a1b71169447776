"""Verify requests that clients have signed with the keys of AWS (Signature Version 4), by hmac of the standard library.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html, read 2026-11-29
"""

import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from dragoman import RequestRefused
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS
from dragoman_server.proxying.client_request import SCOPE_PATH
from dragoman_server.settings.secret import Secret

# "within 5 minutes of the timestamp in the request"
MAX_SKEW_S = 300

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICES = {api.scope for api in CLOUD_APIS.values() if api.extra == "bedrock"}
_FORM = (
    rf"(?a){_ALGORITHM} Credential="
    r"(?P<key_id>[\w-]{1,128})/(?P<scope>(?P<day>\d{8})/[\w-]{1,40}/(?P<service>[\w-]{1,40})/aws4_request), *"
    r"SignedHeaders=(?P<names>[a-z0-9_;-]+), *Signature=(?P<signature>[0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"


class AwsSignature(msgspec.Struct, frozen=True):
    """The signature of a request.

    Attributes:
        key_id: The id of the access key.
        scope: Day, region and service.
        names: Of the headers that are signed.
        time: As the header x-amz-date has it.
    """

    key_id: str
    scope: str
    names: str
    signature: str
    time: str

    def is_valid(self, request: Scope, body: bytes, secret: Secret) -> bool:
        """True if the request was signed with this secret access key."""
        path = request.get("raw_path") or quote(request.get(SCOPE_PATH, request["path"])).encode()
        values = _values(request["headers"])
        query = [pair.partition("=") for pair in request["query_string"].decode("latin-1").split("&") if pair]
        canonical = [
            request["method"],
            quote(path, safe="/~"),  # once more than it was sent
            "&".join(f"{name}={value}" for name, _, value in sorted(query)),
            *(f"{name}:{values.get(name, '')}" for name in self.names.split(";")),
            "",
            self.names,
            sha256(body).hexdigest(),
        ]
        day, region, service, end = self.scope.split("/")
        key = f"AWS4{secret.reveal()}".encode()
        for part in (day, region, service, end):
            key = hmac.digest(key, part.encode(), "sha256")
        digest = sha256("\n".join(canonical).encode()).hexdigest()
        text = "\n".join([_ALGORITHM, self.time, self.scope, digest])
        return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), self.signature)


def _values(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the values of headers as they are signed, by name."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), " ".join(raw_value.decode("latin-1").split())
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def read_signature(headers: Iterable[tuple[bytes, bytes]], now: float) -> AwsSignature | None:
    """Return the signature that a request has, None if it has none. now: seconds since the epoch.

    Raises RequestRefused (401) for one that cannot be verified.
    """
    headers = [*headers]
    if not any(name == b"authorization" and value.startswith(b"AWS4-") for name, value in headers):
        return None
    values = _values(headers)
    found, time = re.fullmatch(_FORM, values["authorization"]), values.get("x-amz-date", "")
    if (
        found is None
        or not {"host", "x-amz-date"} <= set(found["names"].split(";"))
        or found["day"] != time[:8]
    ):
        raise refused(f"it must be {_ALGORITHM}, of the day of x-amz-date, and cover that header and host")
    if found["service"] not in _SERVICES:
        raise refused(f"it is for another service than {', '.join(sorted(_SERVICES))}")
    try:
        signed_at = datetime.strptime(time, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise refused("x-amz-date is not a time such as 20261129T120000Z") from None
    if abs(now - signed_at) > MAX_SKEW_S:
        raise refused(f"its time, {time}, is more than {MAX_SKEW_S} s from the gateway's: set the clocks")
    return AwsSignature(found["key_id"], found["scope"], found["names"], found["signature"], time)


def refused(reason: str) -> RequestRefused:
    """Return the error for a signature. reason: completes "the signature is refused: "."""
    return RequestRefused(
        f"the AWS signature of the request is refused: {reason}", status=401, code="invalid_api_key"
    )
