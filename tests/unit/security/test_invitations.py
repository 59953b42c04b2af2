"""Lines that let processes become agents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import SecurityError
from sapwood.security.invitations import AgentInvitation

PIN = "0123456789abcdef" * 4


@given(st.lists(st.sampled_from(["n1:7700", "10.0.0.1:1", "[::1]:65535"]), max_size=3))
def test_a_line_says_what_was_invited(places: list[str]) -> None:
    made = AgentInvitation.create(PIN, tuple(places))
    assert AgentInvitation.parse(f" {made.line}\n") == made
    assert AgentInvitation.parse(made.token) == AgentInvitation(made.id, made.secret, PIN, ())
    assert made.secret not in repr(made)
    assert made.digest != AgentInvitation.create(PIN, ()).digest


@pytest.mark.parametrize(
    "line",
    ["", "swa1", f"swd1.{'a' * 8}.{'b' * 52}.{PIN}@n1:1", f"swa1.{'a' * 8}.{'1' * 52}.{PIN}"],
)
def test_what_is_no_invitation_is_refused(line: str) -> None:
    with pytest.raises(SecurityError, match="not an invitation of a session"):
        AgentInvitation.parse(line)
