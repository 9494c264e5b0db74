"""Writes outcomes down: the line into its file, on the disk, then one transaction that makes it count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from batchctl.core.errors import StorageError
from batchctl.core.model import Answer, ErrorKind, ItemError, Lane, Outcome, Usage
from batchctl.core.reply import parse_output
from batchctl.core.retry import Decision, decide
from batchctl.files.results import error_line, result_line
from batchctl.runs.held import HeldRun
from batchctl.state.rows import ERROR_MESSAGE_CHARS, BatchRow, Failure, ItemRow, Member, Success, Totals


@dataclass(slots=True)
class Slice:
    """Outcomes of one transaction, gathered before anything counts.

    Args:
        uncounted: lines are only written, for the next process to count: counting earlier ones failed.
    """

    run: HeldRun
    lane: Lane
    batch: BatchRow | None = None
    uncounted: bool = False
    successes: list[Success] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    systemic: ItemError | None = None

    def take(self, row: ItemRow | Member, answer: Answer, decision: Decision | None = None) -> Outcome:
        """Judge one answer and append its line; the item must still be open.

        Args:
            decision: what follows where it did not succeed; None goes by its round.

        Returns:
            The outcome after the reply check.

        Raises:
            StorageError: lines of another slice are in the files without being counted, so writing that one failed.
        """
        if not (self.successes or self.failures or self.uncounted):
            self._refuse_after_failure()
        if answer.outcome is Outcome.SUCCEEDED:
            return self._take_reply(row, answer)
        self._take_failure(row, answer, decision)
        return answer.outcome

    def _refuse_after_failure(self) -> None:
        """Nothing is appended after lines that do not count: the recorded end would pass over them."""
        run = self.run
        if run.store.results.ends(run.id) != (run.results.end, run.errors.end):
            raise StorageError(
                f"run {run.name}: writing earlier outcomes failed, so nothing more is written",
                hint="give the same command again: it reads back what was written and goes on",
            )

    def accepts(self, answer: Answer) -> bool:
        """Whether an answer is a success that passes the reply check, so that it would settle its item."""
        if answer.outcome is not Outcome.SUCCEEDED or self.run.check is None:
            return answer.outcome is Outcome.SUCCEEDED
        output = None if answer.text is None else parse_output(answer.text)
        return self.run.check.problem(answer.text, output) is None

    def _take_reply(self, row: ItemRow | Member, answer: Answer) -> Outcome:
        text = answer.text
        output = None if text is None else parse_output(text)
        problem = None if self.run.check is None else self.run.check.problem(text, output)
        cost = self._count(answer)
        if problem is not None:
            error = ItemError("invalid_reply", problem, ErrorKind.PERMANENT, code=answer.stop_reason)
            self._fail(row, Outcome.INVALID, error, answer.text, Decision.FINAL)
            return Outcome.INVALID
        line = self.line_of(row, answer, output, cost)
        offset, length = self.run.results.append(line)
        self.successes.append(Success(row.seq, offset, length))
        return Outcome.SUCCEEDED

    def line_of(self, row: ItemRow | Member, answer: Answer, output: Any, cost: float | None) -> bytes:
        """The line of an answer in results.jsonl."""
        assert row.id is not None  # only a record that was never sent has none
        return result_line(
            id=row.id,
            output=output,
            text=answer.text,
            stop_reason=answer.stop_reason,
            model=answer.model,
            usage=answer.usage or Usage(),
            cost_usd=cost,
            lane=self.lane,
            batch_id=self.batch.batch_id if self.batch else None,
            round=self._round(row),
            provider=self.run.row.provider,
        )

    def _take_failure(self, row: ItemRow | Member, answer: Answer, decision: Decision | None) -> None:
        error = answer.error or ItemError(str(answer.outcome), _silence(answer.outcome), ErrorKind.RETRYABLE)
        decision = decision or decide(answer.outcome, error.kind, row.round, self.run.settings.max_resubmits)
        if decision is Decision.SYSTEMIC:
            self.systemic = error
        if answer.usage is not None:
            self._count(answer)
        self._fail(row, answer.outcome, error, answer.text, decision)

    def _count(self, answer: Answer) -> float | None:
        usage = answer.usage
        if usage is None:
            return None
        rates = self.run.rates(self.run.settings.model or answer.model, batch=self.lane is Lane.BATCH)
        cost = None if rates is None else rates.cost(usage)
        self.totals.add(usage, cost)
        return cost

    def _fail(
        self,
        row: ItemRow | Member,
        outcome: Outcome,
        error: ItemError,
        text: str | None,
        decision: Decision,
        *,
        sent: int = 1,
    ) -> None:
        offset = length = None
        message = error.message[:ERROR_MESSAGE_CHARS]
        if decision is Decision.FINAL:
            line = error_line(
                id=row.id,
                outcome=outcome,
                error_type=error.type,
                error_code=error.code,
                error_message=message,
                attempts=row.attempts + sent,
                batch_id=self.batch.batch_id if self.batch else None,
                round=self._round(row),
                text=text,
            )
            offset, length = self.run.errors.append(line)
        self.failures.append(
            Failure(
                seq=row.seq,
                outcome=outcome,
                error_type=error.type,
                error_code=error.code,
                message=message,
                final=decision is Decision.FINAL,
                spends_round=decision is Decision.RESUBMIT,
                out_offset=offset,
                out_length=length,
            )
        )

    def close(self, row: ItemRow, outcome: Outcome) -> None:
        """Fail a pending item for good, with the last error it met."""
        attempts = self.run.store.items.attempts(self.run.id, row.seq)
        last = attempts[-1] if attempts else None
        error = ItemError(
            type=(last and last.error_type) or str(outcome),
            message=(last and last.error_message) or "the run was closed before this request was sent",
            kind=ErrorKind.PERMANENT,
            code=last.error_code if last else None,
        )
        self._fail(row, outcome, error, None, Decision.FINAL, sent=0)

    def _round(self, row: ItemRow | Member) -> int:
        return self.batch.round if self.batch else row.round

    def commit(self) -> None:
        """Lines to the disk first, then the transaction; a crash between leaves lines that are read back in."""
        if not (self.successes or self.failures):
            return
        self.run.sync_logs()
        self.run.store.results.record(
            self.run.id,
            self.batch.number if self.batch else None,
            self.lane,
            self.successes,
            self.failures,
            results_end=self.run.results.end,
            errors_end=self.run.errors.end,
            totals=self.totals,
            at=self.run.ctx.now(),
        )


def _silence(outcome: Outcome) -> str:
    return {
        Outcome.EXPIRED: "the batch ran out of time before this request was sent to the model",
        Outcome.CANCELED: "the batch was canceled before this request was sent to the model",
        Outcome.MISSING: "the batch ended without a line for this request in its results",
    }.get(outcome, "the provider gave no reason")
