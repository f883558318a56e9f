"""What a run has shown, as a short table for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.engine.crash.crash import Crash
from service.engine.process.command import LOG_FILE
from service.measures import COUNTED
from service.plugin.measures import Measure, Shown
from service.report.hints import hints, restarts_text
from service.runs.coverage import EdgeCoverage
from service.runs.folder import REPRO_FILE, files_of_a_run
from service.runs.model import CANCELLED_OUTCOME, EngineInfo, Finding, Measures, Run, Verdict, WitnessMeasures

_FAILURES_SHOWN = 3
_LOG_LINES_SHOWN = 12
VERDICT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}


def print_result(console: Console, run: Run) -> None:
    """The table, the verdict with its reasons, and where the files are."""
    console.print(Text(describe(run), style="bold"), soft_wrap=True)
    if run.ready_at is not None or run.measures.decode_steps:
        console.print(result_table(run.measures))
    if rules := rules_text(run.engine):
        console.print(Text(f"rules    {rules}", style="yellow"), soft_wrap=True)
    for crash in run.crashes:
        console.print(crash_text(crash), soft_wrap=True)
    for finding in run.findings:
        console.print(finding_text(finding), soft_wrap=True)
    if run.detail:
        console.print(Text(short_detail(run.detail)), soft_wrap=True)
    verdict = run.verdict or Verdict.INCONCLUSIVE
    simulated = " (simulated)" if run.simulated else ""
    console.print(Text.assemble("verdict  ", (verdict.value.upper() + simulated, VERDICT_STYLES[verdict])))
    for text, count in list(run.measures.failures.items())[:_FAILURES_SHOWN]:
        console.print(Text(f"         {count:,} requests {text}"), soft_wrap=True)
    for reason in run.reasons:
        console.print(Text(f"         {reason}"), soft_wrap=True)
    if restarts := restarts_text(run.measures):
        console.print(Text(f"         {restarts}"), soft_wrap=True)
    for hint in hints(run):
        console.print(Text(f"hint     {hint}", style="yellow"), soft_wrap=True)
    if REPRO_FILE in (files := files_of_a_run(run.folder)):
        # Quoted where the folder's name needs it, so that the line can be taken as it is.
        repro = shlex.quote(str(run.folder / REPRO_FILE))
        console.print(Text(f"again    lastpage soak -f {repro}"), soft_wrap=True)
        if run.crashes:
            console.print(Text(f"shorter  lastpage shrink {repro}"), soft_wrap=True)
    console.print(Text(f"folder   {run.folder}"), soft_wrap=True)
    console.print(Text(f"         {', '.join(files)}"), soft_wrap=True)


def short_detail(detail: str) -> str:
    """A detail without most of the log in it: of arguments that SGLang refused only what it said of them."""
    reason, *log = detail.splitlines() or [""]
    refused = [line for line in log if ": error: " in line]
    if refused:
        return f"{reason}\n{refused[-1]}\nsee {LOG_FILE}"
    if len(log) <= _LOG_LINES_SHOWN:
        return detail
    return "\n".join((reason, f"the last lines of {LOG_FILE}:", *log[-_LOG_LINES_SHOWN:]))


def result_table(measures: Measures) -> Table:
    """The measures that the verdict stands on."""
    table = Table(show_header=False)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("note")
    for name, value, note in _rows(measures):
        table.add_row(name, value, note)
    return table


def describe(run: Run) -> str:
    """One line: what ran on what."""
    engine, spec = run.engine, run.spec
    if engine is None:
        where = spec.engine.name or "the default engine"
    else:
        where = f"{engine.name} (SGLang {engine.sglang_version}, {engine.profile.value})"
    pool = f"{spec.engine.pool_pages:,} pages of {spec.engine.page_size:,}"
    return f"{spec.load.scenario} on {where}, {spec.engine.allocator.value} allocator, {pool}, seed {spec.load.seed}"


def rules_text(engine: EngineInfo | None) -> str:
    """What is assumed of how the engine schedules; empty when its release was read."""
    if engine is None or engine.rules is None or not engine.rules.assumed:
        return ""
    return (
        f"assumed to be those of SGLang {engine.rules.release}: {engine.sglang_version} is not known, and it may "
        "schedule otherwise than the load and coverage expect"
    )


def crash_line(crash: Crash) -> Text:
    """A crash in one line."""
    at = f"{crash.at:%H:%M:%S} UTC"
    step = f", decode step {crash.step:,} since boot" if crash.step is not None else ""
    seconds = crash.seconds_after_ready
    after = f", {seconds:.2f} s after it was ready for load" if seconds is not None else ""
    return Text(f"crash    {crash.kind.value} at {at}{step}{after}", style="red")


def crash_text(crash: Crash) -> Text:
    """A crash, with what is left to look at."""
    evidence = ", ".join(crash.evidence.values()) or "none"
    return crash_line(crash).append(f"\n         {crash.reason}\n         evidence: {evidence}")


def finding_line(finding: Finding) -> Text:
    """A finding in one line."""
    waived = " (waived)" if finding.waived is not None else ""
    line = f"finding  {finding.kind.value}{waived} at {finding.at:%H:%M:%S} UTC: {finding.cause}"
    return Text(line, style="yellow" if waived else "red")


def finding_text(finding: Finding) -> Text:
    """A finding, with how many there were of its kind and cause, and why it is waived if it is."""
    text = finding_line(finding)
    if finding.count > 1:
        lengths = f"{finding.shortest_prompt_tokens:,} to {finding.longest_prompt_tokens:,}"
        text.append(f"\n         {finding.count:,} times, with prompts of {lengths} tokens; the first:")
    text.append(f"\n         {finding.detail}")
    if finding.waived is not None:
        text.append(f"\n         waived: {finding.waived} ({finding.link})")
    return text


def _rows(measures: Measures) -> Iterator[tuple[str, str, str]]:
    yield "decode steps", f"{measures.decode_steps:,}", _rate(measures)
    yield "crossing", f"{measures.crossing_steps:,}", f"{measures.crossing_share:.1%} of decode steps"
    yield "tight", f"{measures.tight_steps:,}", f"{measures.tight_share:.1%} of decode steps"
    yield "critical", f"{measures.critical_steps:,}", f"{measures.critical_share:.1%} of decode steps"
    yield (
        "tight but harmless",
        f"{measures.tight_not_critical_steps:,}",
        "without a trailing row",
    )
    if measures.coverage is not None:
        yield "coverage", f"{measures.coverage.share:.1%}", coverage_text(measures.coverage)
    yield "nearest to tight", _nearest(measures), "pages left over (+) or short (-) in a crossing step that was not"
    for measure in COUNTED:
        count = getattr(measures, measure.name)
        if measure.shown is Shown.ALWAYS or (measure.shown is Shown.NOT_ZERO and count):
            yield measure.words, f"{count:,}", _remark(measure, measures)
    outcomes = ", ".join(_outcome(outcome, count) for outcome, count in sorted(measures.requests.items()))
    yield "requests", f"{sum(measures.requests.values()):,}", outcomes
    if (first := measures.ready_to_first_critical_seconds) is not None:
        yield "first critical step", f"{first:.2f} s", "after the load could begin"
    if (latencies := measures.latencies) is not None:
        for name, times in (("time to first token", latencies.ttft_ms), ("end to end", latencies.e2e_ms)):
            yield (
                name,
                f"{times.p50:,.0f} ms",
                f"median; 99 % within {times.p99:,.0f} ms, all within {times.max:,.0f} ms",
            )
    yield "crashes", f"{measures.crashes:,}", ""
    yield "findings", f"{measures.findings:,}", f"and {measures.waived_findings:,} waived"
    if measures.witnesses is not None:
        yield "witnesses", f"{measures.witnesses.answered:,}", _witnesses(measures.witnesses)


def _remark(measure: Measure, measures: Measures) -> str:
    remark = measure.remark or measure.help
    return f"of {getattr(measures, measure.share_of):,}; {remark}" if measure.share_of else remark


def _witnesses(witnesses: WitnessMeasures) -> str:
    if witnesses.off is not None:
        return f"off: {witnesses.off}"
    parts = [f"{witnesses.compared:,} compared with what they are without pressure"]
    parts += [f"{witnesses.not_compared:,} not compared"] if witnesses.not_compared else []
    parts += [f"{witnesses.near_ties:,} near ties"] if witnesses.near_ties else []
    parts += [f"different answers to {witnesses.disagreeing:,} prompts"] if witnesses.disagreeing else []
    return ", ".join(parts)


def coverage_text(coverage: EdgeCoverage) -> str:
    """How much of the edge was covered, in a line."""
    unforeseen = f"; {coverage.unforeseen:,} more, thought unreachable" if coverage.unforeseen else ""
    return f"{coverage.hit:,} of {coverage.reachable:,} tight cells that can exist on this pool{unforeseen}"


def _rate(measures: Measures) -> str:
    seconds = measures.seconds_under_load
    return f"in {seconds:.1f} s, {measures.decode_steps / seconds:,.0f} a second" if seconds else ""


def _nearest(measures: Measures) -> str:
    over, under = measures.closest_over, measures.closest_under
    parts = [f"+{over:,}"] if over is not None else []
    parts += [f"-{under:,}"] if under is not None else []
    return ", ".join(parts) or "none"


def _outcome(outcome: str, count: int) -> str:
    name = "taken back by lastpage when the load ended" if outcome == CANCELLED_OUTCOME else outcome
    return f"{count:,} {name}"
