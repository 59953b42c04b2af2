"""User-defined filters of one place: they run in a process beside it, never in its own.

A junction routes for everybody, and the front end is the user's process: neither may crash or
hang with a filter. So both have a runner forked when the first filter is called, as agents do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.agent_requests import OUTPUT, decode_settings
from sapwood.activity.needed_content import NeededContent, content_folder
from sapwood.code.runner.crash import ATTEMPTS
from sapwood.code.runner.leases import Lease
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.runner_host import Job, JobOutcome, Preparation, RunnerHost
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.content import RELAY, ContentRef
from sapwood.comm.links import Handlers
from sapwood.comm.loop import Loop
from sapwood.comm.messages import FAIL
from sapwood.comm.payload import Payload
from sapwood.comm.streams.stream import Position, filter_at
from sapwood.contexts.plan import Main
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import RunnerCrashError, SapwoodError
from sapwood.core.topology import ROOT
from sapwood.session.junction import Junction
from sapwood.session.member import MemberConfiguration, OutgoingRequests, read_configuration

if TYPE_CHECKING:
    from sapwood.session.content_cache import HeldContent
    from sapwood.session.content_relay import ContentRelay


class FilterHost:
    """Has the filters of one place called.

    Args:
        position: Where the place is.
        loop: Its event loop.
        options: How runners are set up.
        make_runner_factory: Returns what has runners forked.
        post: Gives the place's node an event.
        on_output: Gets what filters print.
        content: Fetches what filters need; None at the root, where everything is.
    """

    def __init__(
        self,
        position: Position,
        loop: Loop,
        options: RunnerOptions,
        make_runner_factory: Callable[[], RunnerFactory],
        post: Callable[[ev.Event], None],
        on_output: Callable[[bytes], None],
        content: NeededContent | None = None,
    ) -> None:
        self._content = content
        self._waiting: dict[int, list[ev.FilterWanted]] = {}
        self._position = position
        self._loop = loop
        self._options = options
        self._make_runner_factory = make_runner_factory
        self._post = post
        self._on_output = on_output
        self._runner_factory: RunnerFactory | None = None
        self._runner: RunnerHost | None = None
        self._limits: dict[int, float] = {}
        self._open: dict[tuple[int, int], ev.FilterWanted] = {}

    def call(self, effect: ev.FilterWanted) -> None:
        """Call a filter; the answer is posted."""
        key = (effect.spec.stream, effect.ticket)
        self._open[key] = effect
        try:
            self._submit(effect)
        except SapwoodError as error:
            self._failed(key, error)

    def released(self, payload: Payload) -> None:
        """Let the runner use the memory of a result again."""
        if isinstance(payload.owner, Lease) and self._runner is not None:
            self._runner.give_back(payload.owner)

    def stream_closed(self, stream: int) -> None:
        """Forget the filters of a stream."""
        self._limits.pop(stream, None)
        self._waiting.pop(stream, None)
        if self._content is not None:
            self._content.drop(_name(stream))
        for key in [key for key in self._open if key[0] == stream]:
            del self._open[key]
        if self._runner is None:
            return
        name = _name(stream)
        self._runner.forget(name)
        self._loop.call_later(agent_requests.CLOSE_GRACE, self._runner.cancel, name)
        if self._runner.pid:
            nothing = plain.encode(None)
            self._runner.submit(
                Job(agent_requests.CLOSE_FILTER, name, nothing, None, _nothing, _nothing)
            )

    def close(self) -> None:
        """End the runner."""
        if self._content is not None:
            self._content.close()
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._runner_factory is not None:
            self._runner_factory.close()
            self._runner_factory = None

    def _orphaned(self) -> None:
        """The zygote is gone, and the runner with it: the next call finds new ones."""
        self.close()
        self._limits.clear()
        self._waiting.clear()
        for key in list(self._open):
            self._failed(key, RunnerCrashError("the process of the filter ended"))

    def _submit(self, effect: ev.FilterWanted) -> None:
        number = effect.spec.stream
        key = (number, effect.ticket)
        runner = self._runner or self._new_runner()
        if number not in self._limits:
            waiting = self._waiting.get(number)
            if waiting is not None:
                waiting.append(effect)
                return
            needed = self._needed(effect)
            if needed and self._content is not None:
                self._fetch(effect, needed, self._content)
                return
            self._prepare(runner, effect)
        call = agent_requests.FilterCall(
            effect.upward,
            effect.wave,
            effect.version,
            effect.parameters,
            effect.child,
            [_encoded(part) for part in effect.parts],
            [part.rank for part in effect.parts],
            [part.weight for part in effect.parts],
        )
        name = _name(number)
        runner.submit(
            Job(
                agent_requests.FILTER,
                name,
                agent_requests.encode(call),
                None,
                lambda outcome: self._done(key, outcome),
                lambda error: self._failed(key, error),
                time_limit=self._limits[number],
                needs=name,
                function="the filter",
                attempts=1 if effect.spec.on_loss == FAIL else ATTEMPTS,
            )
        )

    def _needed(self, effect: ev.FilterWanted) -> list[ContentRef]:
        own = filter_at(effect.spec, self._position)
        if own is None:
            return []
        codes = {code for code in (own.up, own.down) if code}
        return [ref for code in codes for ref in agent_requests.decode_code(code).content]

    def _fetch(
        self, effect: ev.FilterWanted, needed: list[ContentRef], content: NeededContent
    ) -> None:
        """Fetch what the filters of a stream need; their calls wait meanwhile."""
        number = effect.spec.stream
        self._waiting[number] = [effect]

        def done(_held: HeldContent) -> None:
            waiting = self._waiting.pop(number)
            try:
                self._prepare(self._runner or self._new_runner(), effect)
            except SapwoodError as error:
                self._fail_all(waiting, error)
                return
            for one in waiting:
                self.call(one)

        def failed(error: SapwoodError) -> None:
            self._fail_all(self._waiting.pop(number), error)

        content.fetch(_name(number), needed, done, failed)

    def _fail_all(self, effects: list[ev.FilterWanted], error: SapwoodError) -> None:
        for one in effects:
            self._failed((one.spec.stream, one.ticket), error)

    def _new_runner(self) -> RunnerHost:
        runner_factory = self._runner_factory = self._make_runner_factory()
        runner = RunnerHost(self._loop, self._options, runner_factory, self._on_output)
        runner.on_orphaned = self._orphaned
        self._runner = runner
        return runner

    def _prepare(self, runner: RunnerHost, effect: ev.FilterWanted) -> None:
        own = filter_at(effect.spec, self._position)
        if own is None:
            raise SapwoodError("this place has no filter of its own")
        argument = {
            "up": own.up,
            "down": own.down,
            "per_child": own.per_child,
            "rank": self._position.rank,
            "depth": self._position.depth,
        }
        preparation = Preparation(
            agent_requests.OPEN_FILTER, plain.encode(argument), None, "the filter"
        )
        runner.prepare(_name(effect.spec.stream), preparation)
        self._limits[effect.spec.stream] = agent_requests.decode_code(own.up or own.down).time_limit

    def _done(self, key: tuple[int, int], outcome: JobOutcome) -> None:
        if self._open.pop(key, None) is None:
            if outcome.payload is not None:
                self.released(outcome.payload)
            return
        body = b"" if outcome.body == agent_requests.END_BODY else outcome.body
        self._post(ev.Filtered(*key, body, outcome.payload, outcome.seconds))

    def _failed(self, key: tuple[int, int], error: SapwoodError) -> None:
        if self._open.pop(key, None) is not None:
            self._post(ev.Filtered(*key, b"", None, 0.0, error.to_record()))


def _name(stream: int) -> str:
    return f"filter {stream}"


def _encoded(part: ev.PartialContribution) -> tuple[bytes, bytes, bytes]:
    if part.payload is None:
        return part.body, b"", b""
    if part.payload.ref is not None:
        return part.body, b"", msgspec.msgpack.encode(part.payload.ref)
    return part.body, bytes(part.payload.view), b""


def _nothing(_outcome: object) -> None:
    pass


class FilteringJunction(Junction):
    """An inner vertex that has own filters called.

    Args:
        shared: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        runner_factory: Has its runner forked.
    """

    def __init__(
        self,
        shared: MemberConfiguration,
        rank: int,
        incarnation: int,
        runner_factory: RunnerFactory,
    ) -> None:
        outgoing = OutgoingRequests(self._post)
        self.ask = outgoing.ask
        more: Handlers = {
            ev.FilterWanted: self._filter,
            ev.StreamClosed: self._stream_closed,
            ev.Answered: outgoing.answered,
        }
        super().__init__(shared, rank, incarnation, more)
        settings = decode_settings(shared.extra)
        self.loop = self.member.loop
        options = msgspec.structs.replace(settings.runner, content=content_folder(settings))
        self._needed = NeededContent(self, settings)
        self._relay: ContentRelay | None = None
        self.requests[RELAY] = self._pass_on
        self._filters = FilterHost(
            Position(rank, sum(1 for _ in shared.tree.ancestors(rank))),
            self.member.loop,
            options,
            lambda: runner_factory,
            self.member.place.post,
            self._printed,
            self._needed,
        )
        self.on_lent = self._filters.released

    def content_sources(self) -> tuple[int, ...]:
        """Return the places that may have content for this machine, nearest first."""
        return self.member.content_sources()

    def _pass_on(self, asked: ev.Asked) -> None:
        """Give a machine below a chunk of content."""
        if self._relay is None:
            # Only junctions that have other machines below them need it.
            from sapwood.session.content_relay import ContentRelay  # noqa: PLC0415 - see above

            self._relay = ContentRelay(self._needed.opened_cache(), self.answer, self.fail)
        self._relay.asked(asked)

    def _filter(self, effect: ev.FilterWanted) -> None:
        self._filters.call(effect)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        self._filters.stream_closed(effect.stream)

    def _printed(self, data: bytes) -> None:
        self.ask(ROOT, OUTPUT, plain.encode(data))

    def _post(self, event: ev.Event) -> None:
        self.member.place.post(event)


def main(configuration: bytes, rank: int, incarnation: int, runner_factory: RunnerFactory) -> Main:
    """Assemble a junction; entry of a forked process."""
    shared = read_configuration(configuration)
    return FilteringJunction(shared, rank, incarnation, runner_factory).member.run
