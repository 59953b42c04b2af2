import signal

import pytest

from sapwood.code.runner import child
from sapwood.code.runner.crash import crash_error
from sapwood.core.errors import MemoryLimitError, RunnerCrashError


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-signal.SIGSEGV, "the runner was killed by SIGSEGV in assign"),
        (-signal.SIGABRT, "the runner was killed by SIGABRT in assign"),
        (3, "assign ended its process with status 3"),
        (0, "assign ended its process with status 0"),
    ],
)
def test_the_error_says_what_ended_how(status: int, said: str) -> None:
    error = crash_error("assign", status, {"output": "x\n", "backtrace": " "}, memory_limited=False)
    assert type(error) is RunnerCrashError
    assert error.what == said
    assert error.hint
    assert error.details == {"output": "x\n"}


def test_only_a_kill_under_a_limit_is_about_memory() -> None:
    limited = crash_error("f", -signal.SIGKILL, {}, memory_limited=True)
    assert type(limited) is MemoryLimitError
    assert type(crash_error("f", -signal.SIGKILL, {}, memory_limited=False)) is RunnerCrashError
    at_null = crash_error("f", -signal.SIGSEGV, {}, memory_limited=True)
    assert type(at_null) is RunnerCrashError
    assert "malloc returned NULL" in at_null.hint


def test_a_backtrace_ends_where_the_users_code_ends() -> None:
    text = f'  File "mine.py", line 1 in f\n  File "{child.__file__}", line 9 in serve\n  File "x"'
    error = crash_error("f", -11, {"backtrace": text}, memory_limited=False)
    assert error.details["backtrace"] == '  File "mine.py", line 1 in f\n'
