"""Programs of native sources, as the tests of that room have them."""

from tests.integration.code.conftest import cache, opened, program_of

__all__ = ["cache", "opened", "program_of"]
