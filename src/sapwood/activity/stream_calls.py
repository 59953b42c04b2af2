"""What an agent does for streams that call user code: hands waves to its runner, and answers."""

from collections.abc import Callable

from sapwood.activity import stream_orders as orders
from sapwood.code.runner.crash import ATTEMPTS
from sapwood.code.runner.host import RunnerHost
from sapwood.code.runner.jobs import Job, Lease, Outcome, Preparation
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.messages import FAIL, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.streams.push import is_full
from sapwood.core.errors import SapwoodError
from sapwood.session.agent import Agent, Contribution


class StreamCalls:
    """The streams of one agent whose waves call user code.

    Args:
        agent: The agent.
        runner: Its runner.
        tree: Goes before the names of streams, as the runner may know those of several trees.
    """

    def __init__(self, agent: Agent, runner: RunnerHost, tree: str = "") -> None:
        self._agent = agent
        self._tree = tree
        self._runner = runner
        self._codes: dict[int, orders.UserCode] = {}
        self._paused: dict[int, list[Generating]] = {}
        agent.waves[orders.CALL] = self._wave
        agent.on_stream_resumed = self._resumed

    def stream_closed(self, stream: int) -> None:
        """Drop what is done for a stream."""
        self._paused.pop(stream, None)
        if self._codes.pop(stream, None) is None:
            return
        name = self._name(stream)
        self._runner.forget(name)
        self._agent.loop.call_later(orders.CLOSE_GRACE, self._end_calls, stream)
        if self._runner.pid:
            self._runner.submit(
                Job(orders.CLOSE, name, plain.encode(None), None, _nothing, _nothing)
            )

    def _end_calls(self, stream: int) -> None:
        if stream not in self._codes:  # else this place has been told of it anew
            self._runner.cancel(self._name(stream))

    def close(self) -> None:
        """Drop what is done for all streams: their tree is no longer there."""
        for stream in list(self._codes):
            self.stream_closed(stream)

    def step(self, generating: "Generating") -> None:
        """Have a generator go on, or later if its stream is quiet or takes no more at present."""
        number = generating.contribution.arrived.spec.stream
        stream = self._agent.place.node.streams.get(number)
        if stream is None:
            return
        if is_full(stream):
            self._paused.setdefault(number, []).append(generating)
            return
        self._submit(
            number, orders.NEXT, generating.body, None, generating.came, generating.contribution
        )

    def emit(self, stream: int, outcome: Outcome) -> None:
        """Send a value up that no wave asked for."""
        payload = outcome.payload
        if payload is not None and payload.ref is not None:
            # It is kept until the root has it; the runner's memory is free at once.
            copy = Payload(bytes(payload.view))
            if isinstance(payload.owner, Lease):
                self._runner.give_back(payload.owner)
            payload = copy
        self._agent.post(ev.Emit(stream, 1.0, outcome.body, payload))

    def _wave(self, contribution: Contribution) -> None:
        arrived = contribution.arrived
        code = self._code_of(arrived.spec)

        def done(outcome: Outcome) -> None:
            if code.steps:
                self.step(Generating(self, contribution, outcome.body))
            else:
                contribution.give(outcome.body, outcome.payload)

        number = arrived.spec.stream
        self._submit(number, orders.CALL_ONCE, arrived.body, arrived.payload, done, contribution)

    def _submit(
        self,
        stream: int,
        procedure: str,
        body: bytes,
        payload: Payload | None,
        done: Callable[[Outcome], None],
        contribution: Contribution,
    ) -> None:
        code = self._codes[stream]
        name = self._name(stream)
        # A generator ends with its runner, and a part of its values is on its way.
        again = procedure != orders.NEXT and contribution.arrived.spec.on_loss != FAIL

        def failed(error: SapwoodError) -> None:
            contribution.fail(error.located_in(code.function))

        self._runner.submit(
            Job(
                procedure,
                name,
                body,
                payload,
                done,
                failed,
                time_limit=code.time_limit,
                needs=name,
                function=code.function,
                attempts=ATTEMPTS if again else 1,
            )
        )

    def _code_of(self, spec: StreamSpec) -> orders.UserCode:
        code = self._codes.get(spec.stream)
        if code is None:
            code = self._codes[spec.stream] = orders.decode_code(spec.code)
            body = plain.encode(spec.code)
            preparation = Preparation(orders.OPEN, body, None, code.function)
            self._runner.prepare(self._name(spec.stream), preparation)
        return code

    def _name(self, stream: int) -> str:
        return f"{self._tree}stream {stream}"

    def _resumed(self, stream: int) -> None:
        for generating in self._paused.pop(stream, []):
            self.step(generating)


class Generating:
    """A generator of the user that goes on step by step: other calls come in between.

    Args:
        calls: The streams of its agent.
        contribution: The wave that began it.
        body: What the runner calls it, encoded.
    """

    __slots__ = ("_calls", "body", "contribution")

    def __init__(self, calls: StreamCalls, contribution: Contribution, body: bytes) -> None:
        self._calls = calls
        self.contribution = contribution
        self.body = body

    def came(self, outcome: Outcome) -> None:
        """Send a value on and ask for the next one; at the end, answer the wave."""
        if outcome.body == orders.END_BODY:
            self.contribution.give(b"", None)
            return
        self._calls.emit(self.contribution.arrived.spec.stream, outcome)
        self._calls.step(self)


def _nothing(_outcome: object) -> None:
    pass
