"""The process of a junction: an inner vertex that routes and reduces."""

from sapwood.session.member import Member, read_configuration


def main(configuration: bytes, rank: int, incarnation: int) -> None:
    """Run a junction; entry of a forked process."""
    Member(read_configuration(configuration), rank, incarnation, {}).run()
