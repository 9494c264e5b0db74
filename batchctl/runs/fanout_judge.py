"""What follows each call of the sync lane: the outcome written down, another try later, or the end of the run."""

from __future__ import annotations

from typing import NamedTuple

from batchctl.core.adaptive import pause_after
from batchctl.core.breaker import Breaker
from batchctl.core.durations import format_duration
from batchctl.core.errors import Fault, ProviderError
from batchctl.core.events import Level
from batchctl.core.limiter import Taken
from batchctl.core.model import Answer, ErrorKind, ItemError, Outcome
from batchctl.core.retry import Decision, backoff
from batchctl.providers.base import Completion
from batchctl.runs.fanout_progress import Meter
from batchctl.runs.fanout_recorder import Recorder
from batchctl.runs.fanout_throttle import Throttle
from batchctl.runs.held import HeldRun
from batchctl.state.rows import Member

FIRST_BACKOFF = 1.0  # seconds at most before the second try, doubled with each
LONGEST_BACKOFF = 60.0
NO_ROOM = 429
BUSY = (503, 529)
IN_A_ROW = 3  # failures without an answer between before they are the server's, not the items'
PART = 4  # of the window must fail so: where many go at once some fail before the first can be answered
MOST_IN_A_ROW = 20
UNANSWERED = 20  # refusals of an item that cost it nothing, while nobody is answered
CERTAIN = (401, 402)  # statuses that every item would meet
OFTEN_ITS_OWN = (403, 404)  # an edge that blocks one text, a file that one item names
DESCRIPTORS = "too_many_open_files"


class Again(NamedTuple):
    """An item to be tried again after some seconds."""

    member: Member
    seconds: float


class Judge:
    """Decides on answers and errors; an item it gives back is tried again, any other has its outcome.

    Args:
        max_attempts: calls an item gets in all, restarts included.
    """

    def __init__(
        self,
        run: HeldRun,
        *,
        throttle: Throttle,
        recorder: Recorder,
        breaker: Breaker,
        meter: Meter,
        max_attempts: int,
    ) -> None:
        self._run = run
        self._throttle = throttle
        self._recorder = recorder
        self._breaker = breaker
        self._meter = meter
        self._max_attempts = max_attempts
        self._random = run.ctx.random
        self._failing = 0  # errors of the server since its last answer
        self._doubtful = 0  # errors since then that may be the items' own or everybody's
        self._strikes: dict[int, int] = {}  # of those, by item
        self._refused: set[int] = set()  # items refused for lack of room since then
        self._free: dict[int, int] = {}  # refusals that cost an item nothing
        self.hint: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the run must stop, if it must."""
        return self._breaker.reason

    def stop(self, reason: str, hint: str | None = None) -> None:
        """Stop for a reason that every item would meet; the first one stays."""
        if self._breaker.reason is None:
            self.hint = hint
        self._breaker.stop(reason)

    def answered(self, member: Member, completion: Completion, taken: Taken, sent: float, now: float) -> Again | None:
        """Take in an answer; `sent` and `now` are seconds of the loop's clock."""
        answer = completion.answer
        usage = answer.usage
        self._failing = self._doubtful = 0
        self._refused.clear()
        self._throttle.answered(now, taken, member.tokens, usage, now - sent)
        if completion.rate is not None:
            self._throttle.told_by(now, completion.rate)
        if usage is not None:
            self._meter.tokens += usage.input_tokens + usage.output_tokens
        if answer.outcome is not Outcome.SUCCEEDED:
            return self._failed(member, answer, None)
        self._finish(member, answer, "invalid_reply")
        return None

    def refused(self, member: Member, error: ProviderError, now: float) -> Again | None:
        """Take in a call that failed."""
        if error.type == DESCRIPTORS:
            return Again(member, self._out_of_descriptors(error))
        kind = _KINDS.get(error.fault, ErrorKind.RETRYABLE)
        name = error.type or (f"http_{error.status}" if error.status else "no_answer")
        reason = ItemError(name, error.message, kind, error.code)
        answer = Answer(member.id, Outcome.ERRORED, error=reason)
        if kind is ErrorKind.RETRYABLE:
            self._slow_down(error, now)
            if error.status == NO_ROOM and self._says_nothing_of(member):
                return Again(member, self._wait(member.attempts + 1, error.retry_after))
        else:
            self.hint = self.hint or error.hint
        if kind is ErrorKind.SYSTEMIC and _may_be_its_own(error):
            return self._doubted(member, answer)
        return self._failed(member, answer, error.retry_after)

    def _says_nothing_of(self, member: Member) -> bool:
        """Whether a refusal for lack of room costs its item no attempt: others are refused too, and nobody answered."""
        self._refused.add(member.seq)
        free = self._free.get(member.seq, 0)
        if len(self._refused) == 1 or free >= UNANSWERED:
            return False
        self._free[member.seq] = free + 1
        return True

    def _doubted(self, member: Member, answer: Answer) -> Again | None:
        """One error that may be everybody's: many without an answer between stop the run, else it is its item's own."""
        self._doubtful += 1
        if self._are_many(self._doubtful):
            return self._failed(member, answer, None)
        strikes = self._strikes[member.seq] = self._strikes.get(member.seq, 0) + 1
        if strikes < self._max_attempts:
            return Again(member, self._wait(strikes, None))
        assert answer.error is not None
        self._finish(member, answer, answer.error.type)
        return None

    def _are_many(self, failures: int) -> bool:
        return failures >= min(max(IN_A_ROW, self._throttle.size // PART), MOST_IN_A_ROW)

    def too_large(self, member: Member, reason: str) -> None:
        """Fail an item that no minute has room for."""
        error = ItemError("request_too_large", reason, ErrorKind.PERMANENT)
        self._finish(member, Answer(member.id, Outcome.ERRORED, error=error), error.type)

    def _failed(self, member: Member, answer: Answer, retry_after: float | None) -> Again | None:
        error = answer.error or ItemError(str(answer.outcome), "the provider gave no reason", ErrorKind.RETRYABLE)
        if error.kind is ErrorKind.SYSTEMIC:
            self.stop(error.message, self.hint)
            return None  # nothing is spent: the item stays open
        attempts = member.attempts + 1
        if error.kind is ErrorKind.PERMANENT or attempts >= self._max_attempts:
            self._finish(member, answer, error.type)
            return None
        self._recorder.take(member, answer, Decision.RETRY)
        return Again(member._replace(attempts=attempts), self._wait(attempts, retry_after))

    def _wait(self, attempts: int, retry_after: float | None) -> float:
        """Seconds before an item is tried again after so many failures."""
        wait = backoff(attempts, FIRST_BACKOFF, LONGEST_BACKOFF, self._random.random())
        return wait if retry_after is None else max(wait, pause_after(retry_after, 1, self._random.random()))

    def _finish(self, member: Member, answer: Answer, failure: str) -> None:
        """Write the end of an item down; `failure` names it where it is none."""
        if self._recorder.take(member, answer, Decision.FINAL) is Outcome.SUCCEEDED:
            self._meter.completed += 1
            self._breaker.record(None)
        else:
            self._meter.failed += 1
            self._breaker.record(failure)

    def _slow_down(self, error: ProviderError, now: float) -> None:
        """Pause everything where the provider has no room, or fails again and again."""
        self._failing += 1
        ours = error.status == NO_ROOM
        self._meter.refused += ours
        if not (ours or error.status in BUSY or error.retry_after is not None or self._are_many(self._failing)):
            return
        pause = self._throttle.refused(now, error.retry_after, ours=ours)
        if pause:
            self._run.emit(
                "fanout.paused",
                f"everything waits {format_duration(pause)}: {error.message}",
                level=Level.WARNING,
                data={"seconds": round(pause, 3), "status": error.status, "pace": round(self._throttle.pace, 3)},
            )

    def _out_of_descriptors(self, error: ProviderError) -> float:
        """Too many open files is this machine's affair: fewer at a time, and the item has spent nothing."""
        self._throttle.narrow(self._throttle.size // 2)
        self._run.emit("fanout.descriptors", f"{error.message}; {error.hint}", level=Level.WARNING)
        return FIRST_BACKOFF


def _may_be_its_own(error: ProviderError) -> bool:
    """Whether what seems everybody's error may be one item's: a page of an edge, a status that can mean the request."""
    told = error.type is not None or error.code is not None
    return error.status is not None and error.status not in CERTAIN and (error.status in OFTEN_ITS_OWN or not told)


_KINDS = {Fault.SYSTEMIC: ErrorKind.SYSTEMIC, Fault.PERMANENT: ErrorKind.PERMANENT}
