"""The defaults of targets and tool rules, and that a protocol needs every field but no more."""

import pytest
from core_toy import exchange_of, toy

from dragoman._spec import ProtocolSpec, Target, ToolRule


def test_defaults_suit_the_widest_range() -> None:
    target = Target()
    assert (target.custom_tools, target.developer_role, target.mid_system) == (None, False, False)
    rule = ToolRule()
    assert (rule.max_name, rule.max_call_id, rule.namespaces) == (64, 64, False)


def test_a_spec_is_complete_at_birth() -> None:
    with pytest.raises(TypeError, match="name"):
        ProtocolSpec()  # type: ignore[call-arg]
    spec = toy()
    assert all(getattr(spec, field) is not None for field in spec.__struct_fields__)


def test_exchange_hides_no_secret_by_default() -> None:
    assert exchange_of().sealer.secret is None
