"""User-defined filters of one place: they run in a process beside it, never in its own.

A junction routes for everybody, and the client is the user's process: neither may crash or
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
from sapwood.comm.links import Handlers
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.messages import FAIL, FilterAt
from sapwood.comm.payload import Payload
from sapwood.comm.streams.filters import Position
from sapwood.content.messages import GET
from sapwood.contexts.plan import Main
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import ResourceError, RunnerCrashError, SapwoodError
from sapwood.core.topology import ROOT
from sapwood.session.junction import Junction
from sapwood.session.member import MemberConfiguration, OutgoingRequests, read_configuration

if TYPE_CHECKING:
    from sapwood.content.fetch import HeldContent
    from sapwood.content.relay import ContentRelay


AGAIN_PAUSE = 0.05
"""Seconds between two tries to get a runner from a zygote that is being replaced."""

AGAIN_PATIENCE = 60.0
"""Seconds after which these tries end."""

_Waiting = tuple[Callable[[], None], Callable[[SapwoodError], None]]
"""Callbacks for filters that were loaded, and for filters that cannot be."""


class _OpenCall:
    """A call of a filter that is not answered.

    Attributes:
        effect: The call.
        losses: How often its runner ended with the zygote.
    """

    __slots__ = ("effect", "losses")

    def __init__(self, effect: ev.FilterWanted) -> None:
        self.effect = effect
        self.losses = 0


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
        outlives_zygote: Whether the place continues without its zygote, as the root does. A
            junction ends with it, so a junction does not answer calls whose runner has ended
            together with the zygote: its own end is what the tree recovers from.
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
        *,
        outlives_zygote: bool = False,
    ) -> None:
        self._content = content
        self._waiting: dict[str, list[_Waiting]] = {}
        self._position = position
        self._loop = loop
        self._options = options
        self._make_runner_factory = make_runner_factory
        self._post = post
        self._on_output = on_output
        self._runner_factory: RunnerFactory | None = None
        self._runner: RunnerHost | None = None
        self._limits: dict[str, float] = {}
        self._names: dict[int, set[str]] = {}
        self._staging: dict[tuple[int, int], ev.FilterStaging] = {}
        self._open: dict[tuple[int, int], _OpenCall] = {}
        self._outlives_zygote = outlives_zygote
        self._again: Timer | None = None
        self._again_until = 0.0

    def call(self, effect: ev.FilterWanted) -> None:
        """Call a filter; the answer is posted."""
        call = self._open[effect.spec.stream, effect.ticket] = _OpenCall(effect)
        if self._again is None:
            self._try(call)

    def _try(self, call: _OpenCall) -> None:
        try:
            self._submit(call)
        except SapwoodError as error:
            self._failed((call.effect.spec.stream, call.effect.ticket), error)

    def released(self, payload: Payload) -> None:
        """Let the runner use the memory of a result again."""
        if isinstance(payload.owner, Lease) and self._runner is not None:
            self._runner.give_back(payload.owner)

    def stage(self, effect: ev.FilterStaging) -> None:
        """Load filters that a later version may use; the answer is posted."""
        self._staging[effect.stream, effect.number] = effect
        if self._again is None:
            self._try_staging(effect)

    def _try_staging(self, effect: ev.FilterStaging) -> None:
        key, name = (effect.stream, effect.number), _name(effect.stream, effect.code)

        def answer(error: SapwoodError | None = None) -> None:
            if self._staging.pop(key, None) is not None:
                record = None if error is None else error.to_record()
                self._post(ev.FilterStaged(*key, record))

        def load() -> None:
            runner = self._runner or self._new_runner()
            nothing = plain.encode(None)
            limit = self._limits[name]
            runner.submit(
                Job(
                    agent_requests.STAGE_FILTER,
                    name,
                    nothing,
                    None,
                    lambda _outcome: answer(),
                    answer,
                    time_limit=limit,
                    needs=name,
                    function="the filter",
                )
            )

        try:
            self._when_loadable(effect.stream, name, effect.own, load, answer)
        except SapwoodError as error:
            answer(error)

    def unused(self, effect: ev.FilterUnused) -> None:
        """Forget filters that no wave uses any more."""
        name = _name(effect.stream, effect.code)
        self._names.get(effect.stream, set()).discard(name)
        self._drop(name)

    def stream_closed(self, stream: int) -> None:
        """Forget the filters of a stream."""
        for key in [key for key in self._open if key[0] == stream]:
            del self._open[key]
        for key in [key for key in self._staging if key[0] == stream]:
            del self._staging[key]
        for name in self._names.pop(stream, set()):
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._limits.pop(name, None)
        self._waiting.pop(name, None)
        if self._content is not None:
            self._content.drop(name)
        if self._runner is None:
            return
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
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._runner_factory is not None:
            self._runner_factory.close()
            self._runner_factory = None

    def _orphaned(self) -> None:
        """The zygote is gone, and the runner with it: another zygote has one forked."""
        self.close()
        self._limits.clear()
        self._waiting.clear()
        for key, call in list(self._open.items()):
            call.losses += 1
            if call.effect.spec.on_loss == FAIL or call.losses == ATTEMPTS:
                self._failed(key, RunnerCrashError("the process of the filter ended"))
        self._again_until = self._loop.time() + AGAIN_PATIENCE
        self._begin_again()

    def _begin_again(self) -> None:
        """Repeat the open calls in a new runner, as soon as there is a zygote."""
        self._again = None
        try:
            self._new_runner()
        except ResourceError as error:
            if self._loop.time() < self._again_until:
                self._again = self._loop.call_later(AGAIN_PAUSE, self._begin_again)
                return
            for key in list(self._open):
                self._failed(key, error)
            for key in list(self._staging):
                del self._staging[key]
                self._post(ev.FilterStaged(*key, error.to_record()))
            return
        for call in list(self._open.values()):
            self._try(call)
        for effect in list(self._staging.values()):
            self._try_staging(effect)

    def _submit(self, call: _OpenCall) -> None:
        effect = call.effect
        key, name = (effect.spec.stream, effect.ticket), _name(effect.spec.stream, effect.code)

        def submit() -> None:
            self._submit_call(name, call)

        def failed(error: SapwoodError) -> None:
            self._failed(key, error)

        self._when_loadable(effect.spec.stream, name, effect.own, submit, failed)

    def _submit_call(self, name: str, open_call: _OpenCall) -> None:
        effect = open_call.effect
        key = (effect.spec.stream, effect.ticket)
        runner = self._runner or self._new_runner()
        call = agent_requests.FilterCall(
            effect.upward,
            effect.wave,
            effect.version,
            effect.parameters,
            effect.child,
            [_encoded(part, copied=open_call.losses > 0) for part in effect.parts],
            [part.rank for part in effect.parts],
            [part.weight for part in effect.parts],
        )
        runner.submit(
            Job(
                agent_requests.FILTER,
                name,
                agent_requests.encode(call),
                None,
                lambda outcome: self._done(key, outcome),
                lambda error: self._failed(key, error),
                time_limit=self._limits[name],
                needs=name,
                function="the filter",
                attempts=1 if effect.spec.on_loss == FAIL else ATTEMPTS,
            )
        )

    def _when_loadable(
        self,
        stream: int,
        name: str,
        own: FilterAt,
        go_on: Callable[[], None],
        failed: Callable[[SapwoodError], None],
    ) -> None:
        """Go on when what filters need is here and the runner knows how to load them."""
        if name in self._limits:
            go_on()
            return
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append((go_on, failed))
            return
        self._names.setdefault(stream, set()).add(name)
        codes = {code for code in (own.up, own.down) if code}
        needed = [ref for code in codes for ref in agent_requests.decode_code(code).content]
        if not needed or self._content is None:
            self._prepare(name, own)
            go_on()
            return
        self._waiting[name] = [(go_on, failed)]

        def fetched(_held: HeldContent) -> None:
            waiting = self._waiting.pop(name)
            try:
                self._prepare(name, own)
                for resume, _ in waiting:
                    resume()
            except SapwoodError as error:
                _tell(waiting, error)

        self._content.fetch(
            name, needed, fetched, lambda error: _tell(self._waiting.pop(name), error)
        )

    def _new_runner(self) -> RunnerHost:
        runner_factory = self._runner_factory = self._make_runner_factory()
        runner = RunnerHost(self._loop, self._options, runner_factory, self._on_output)
        if self._outlives_zygote:
            runner.on_orphaned = self._orphaned
        self._runner = runner
        return runner

    def _prepare(self, name: str, own: FilterAt) -> None:
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
        runner = self._runner or self._new_runner()
        runner.prepare(name, preparation)
        self._limits[name] = agent_requests.decode_code(own.up or own.down).time_limit

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


def _name(stream: int, code: str) -> str:
    return f"filter {stream} {code}"


def _tell(waiting: list[_Waiting], error: SapwoodError) -> None:
    for _, failed in waiting:
        failed(error)


def _encoded(part: ev.PartialContribution, *, copied: bool) -> tuple[bytes, bytes, bytes]:
    """Encode a value; ``copied`` if the process whose memory holds it may have ended."""
    if part.payload is None:
        return part.body, b"", b""
    if part.payload.ref is not None and not copied:
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
            ev.FilterStaging: self._stage,
            ev.FilterUnused: self._unused,
            ev.StreamClosed: self._stream_closed,
            ev.Answered: outgoing.answered,
        }
        super().__init__(shared, rank, incarnation, more)
        settings = decode_settings(shared.extra)
        self.loop = self.member.loop
        options = msgspec.structs.replace(settings.runner, content=content_folder(settings))
        self._needed = NeededContent(self, settings)
        self._relay: ContentRelay | None = None
        self.requests[GET] = self._pass_on
        self._filters = FilterHost(
            Position(rank, sum(1 for _ in shared.tree.ancestors(rank))),
            self.member.loop,
            options,
            lambda: runner_factory,
            self.member.driver.post,
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
            from sapwood.content.relay import ContentRelay  # noqa: PLC0415 - see above

            self._relay = ContentRelay(self._needed.opened_cache(), self.answer, self.fail)
        self._relay.asked(asked)

    def _filter(self, effect: ev.FilterWanted) -> None:
        self._filters.call(effect)

    def _stage(self, effect: ev.FilterStaging) -> None:
        self._filters.stage(effect)

    def _unused(self, effect: ev.FilterUnused) -> None:
        self._filters.unused(effect)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        self._filters.stream_closed(effect.stream)

    def _printed(self, data: bytes) -> None:
        self.ask(ROOT, OUTPUT, plain.encode(data))

    def _post(self, event: ev.Event) -> None:
        self.member.driver.post(event)


def main(configuration: bytes, rank: int, incarnation: int, runner_factory: RunnerFactory) -> Main:
    """Assemble a junction; entry of a forked process."""
    shared = read_configuration(configuration)
    return FilteringJunction(shared, rank, incarnation, runner_factory).member.run
