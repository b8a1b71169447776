"""Decide which loss policy a request has: by the settings, its key, and the header of its client."""

import dragoman
from dragoman_server.settings import ClientKey, Settings, UpstreamSettings

# The header with which a client chooses the loss policy of one request.
LOSS_POLICY_HEADER = "dragoman-loss-policy"

_POLICIES = {policy.value: policy for policy in dragoman.LossPolicy}


def loss_policy(
    settings: Settings, upstream: UpstreamSettings, key: ClientKey | None, requested: str | None
) -> dragoman.LossPolicy:
    """Return the loss policy. A client may always request a stricter one; a looser one only if its key allows that.

    requested: the value of the client's header. Raises RemoteProtocolError.
    """
    key_policy = None if key is None else key.loss_policy
    configured = _POLICIES[key_policy or upstream.loss_policy or settings.server.loss_policy]
    if requested is None:
        return configured
    try:
        policy = dragoman.LossPolicy(requested.strip().lower())
    except ValueError:
        values = " or ".join(policy.value for policy in dragoman.LossPolicy)
        message = f"the header {LOSS_POLICY_HEADER} has the value {requested[:40]!a}: write {values}"
        raise dragoman.RemoteProtocolError(message, code="invalid_value") from None
    if (
        policy is dragoman.LossPolicy.RECORD
        and configured is dragoman.LossPolicy.REFUSE
        and not (key is not None and key.may_loosen)
    ):
        message = f"losses are refused here, and {LOSS_POLICY_HEADER}: record is not allowed with this key"
        raise dragoman.RequestRefused(message, status=403)
    return policy
