import pickle
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core import errors
from sapwood.core.errors import (
    EXCEPTION_TYPE,
    MAX_RECORD_TEXT,
    BuildError,
    ErrorRecord,
    SapwoodError,
    UserCodeError,
    error_classes,
)

EXIT_CODES = {
    "SapwoodError": 1,
    "InputError": 2,
    "ConfigurationError": 2,
    "ProgramError": 2,
    "ParameterError": 2,
    "BuildError": 3,
    "CompilerMissingError": 3,
    "FunctionMissingError": 2,
    "ArgumentError": 2,
    "DataError": 2,
    "DataMissingError": 2,
    "DataShapeError": 2,
    "DataValueError": 2,
    "ExecutionError": 4,
    "UserCodeError": 4,
    "RunnerCrashError": 4,
    "TimeLimitError": 4,
    "MemoryLimitError": 4,
    "CancelledError": 4,
    "ProcessSpentError": 4,
    "ResourceError": 5,
    "DrainedError": 75,
    "NotReadyError": 75,
    "CommunicationError": 6,
    "ProtocolError": 6,
    "ActorLostError": 6,
    "AgentLostError": 6,
    "ClosedError": 6,
    "NodeLostError": 6,
    "GroupError": 6,
    "StoreError": 5,
    "StoreInUseError": 5,
    "StoreFullError": 5,
    "StoreUnavailableError": 6,
    "HistoryGoneError": 5,
    "LeaseLostError": 5,
    "SecurityError": 7,
    "InternalError": 1,
}

texts = st.text(max_size=80)
records = st.builds(
    ErrorRecord,
    code=st.sampled_from(sorted(error_classes())),
    what=texts,
    where=texts,
    hint=texts,
    details=st.dictionaries(texts, texts, max_size=3),
)


def own_classes() -> list[type[SapwoodError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, SapwoodError)]


def drawn_tree() -> dict[str, tuple[str, str]]:
    """Return (parent, code) of each class, as the docstring draws it."""
    drawn: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)(\w+Error)\s+(SW\d+)", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        drawn[found[2]] = (path[depth - 1] if depth else "", found[3])
    return drawn


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    real = {
        kind.__name__: (kind.__mro__[1].__name__ if kind is not SapwoodError else "", kind.code)
        for kind in own_classes()
    }
    assert drawn_tree() == real


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in own_classes()]
    assert len(set(codes)) == len(codes)
    assert error_classes() == {kind.code: kind for kind in own_classes()}


def test_exit_codes_are_the_documented_ones() -> None:
    assert {kind.__name__: kind.exit_code for kind in own_classes()} == EXIT_CODES


@given(records)
def test_a_record_comes_back_as_the_same_error(record: ErrorRecord) -> None:
    error = SapwoodError.from_record(record)
    assert type(error).code == record.code
    assert error.to_record() == record
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=ErrorRecord)
    assert SapwoodError.from_record(travelled).to_record() == record


@given(records)
def test_errors_can_be_pickled(record: ErrorRecord) -> None:
    error = SapwoodError.from_record(record)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above
    assert type(again) is type(error)
    assert again.to_record() == record
    assert str(again) == str(error)


def test_an_unknown_code_is_still_an_error_of_ours() -> None:
    error = SapwoodError.from_record(ErrorRecord(code="SW999", what="from the future"))
    assert type(error) is SapwoodError
    assert error.what == "from the future"


@pytest.mark.parametrize("builtin", [ValueError, KeyError, ZeroDivisionError, RuntimeError])
def test_a_users_exception_is_also_the_builtin_one(builtin: type[Exception]) -> None:
    record = ErrorRecord(code="SW201", what="x", details={EXCEPTION_TYPE: builtin.__name__})
    error = SapwoodError.from_record(record)
    assert isinstance(error, UserCodeError)
    assert isinstance(error, builtin)
    assert str(error) == "x"
    assert isinstance(pickle.loads(pickle.dumps(error)), builtin)  # noqa: S301 - made here


@pytest.mark.parametrize(
    "name", ["OwnError", "SystemExit", "KeyboardInterrupt", "print", "", "Exception.x"]
)
def test_what_is_no_builtin_exception_stays_a_user_code_error(name: str) -> None:
    record = ErrorRecord(code="SW201", what="x", details={EXCEPTION_TYPE: name})
    assert type(SapwoodError.from_record(record)) is UserCodeError


@pytest.mark.parametrize(
    "name", ["OSError", "UnicodeDecodeError", "ExceptionGroup", "StopIteration"]
)
def test_awkward_builtin_exceptions_are_user_code_errors_at_least(name: str) -> None:
    record = ErrorRecord(code="SW201", what="x", details={EXCEPTION_TYPE: name})
    error = SapwoodError.from_record(record)
    assert isinstance(error, UserCodeError)
    assert str(error) == "x"
    assert error_classes()["SW201"] is UserCodeError


def test_long_texts_lose_their_middle() -> None:
    record = SapwoodError("a" * MAX_RECORD_TEXT + "b", details={"x": "c" * 10**6}).to_record()
    assert record.what.startswith("aaa")
    assert record.what.endswith("b")
    assert len(record.details["x"]) < MAX_RECORD_TEXT + 100
    assert "characters left out" in record.details["x"]


def test_a_message_says_what_where_and_what_to_do() -> None:
    error = BuildError(
        "it does not compile",
        where="a.c:3",
        hint="read on",
        details={"compiler output": "a.c:3: error\n", EXCEPTION_TYPE: "ValueError"},
    )
    assert str(error) == (
        "it does not compile (a.c:3). Hint: read on\n--- compiler output ---\na.c:3: error"
    )
    assert str(error.located("agent 2")).startswith("it does not compile (a.c:3, agent 2).")
