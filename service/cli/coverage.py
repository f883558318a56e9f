"""`lastpage coverage`: which cells of the edge one run has hit, or several between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import console, refuse

if TYPE_CHECKING:
    from loadgen.coverage import Coverage

EXIT_NOT_REACHED = 3
_FAULTS_TOLD = 5


def coverage(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or their report.json files.")],
    min_share: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Exit with 3 when less of the reachable tight cells was hit: 0.9 or 90%."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the same as a picture into this file.")
    ] = None,
) -> None:
    """Show which cells of the edge runs have hit: a table, and heat maps. Of several runs, what they hit together."""
    from loadgen.coverage import Coverage
    from service.files import write_atomically
    from service.report.coverage_map import coverage_svg, coverage_view
    from service.spec.fraction import parse_fraction

    try:
        least_share = None if min_share is None else parse_fraction(min_share)
    except ValueError as error:
        refuse("min-share", min_share, str(error))
    files = [_report_of(path) for path in runs]
    given: set[Path] = set()
    for path, file in zip(runs, files, strict=True):
        if file.resolve() in given:
            refuse("run", str(path), "this run was given before; its steps would count twice")
        given.add(file.resolve())
    if svg is not None and svg.exists() and any(svg.samefile(file) for file in files if file.exists()):
        refuse("svg", str(svg), "this is the report that is shown; give another file")
    parts = [_of_run(path) for path in runs]
    whole = Coverage.together(parts)
    screen = console()
    if len(parts) > 1:
        for path, part in zip(runs, parts, strict=True):
            count = f"{len(part.covered):,} of {len(part.reachable_tight):,}"
            screen.print(f"{part.share:6.1%}  {count}  {path}", soft_wrap=True)
    screen.print(coverage_view(whole))
    if svg is not None:
        try:
            write_atomically(svg, coverage_svg(whole, "lastpage: cells of the edge"))
        except OSError as error:
            refuse("svg", str(svg), f"cannot be written: {error.strerror or error}")
    if least_share is not None and whole.share < least_share:
        screen.print(f"{whole.share:.1%} is less than {least_share:.1%}")
        raise typer.Exit(EXIT_NOT_REACHED)


def _report_of(path: Path) -> Path:
    from service.runs.folder import REPORT_FILE

    return path / REPORT_FILE if path.is_dir() else path


def _of_run(path: Path) -> Coverage:
    from pydantic import ValidationError

    from service.report.json_report import read_report
    from service.report.report import ReportExtract
    from service.runs.coverage import read_back
    from service.spec.faults import faults_of

    file = _report_of(path)
    damaged = f"{file.name} is no report of a run, or a damaged one"
    try:
        coverage = ReportExtract.model_validate(read_report(file)).measures.coverage
        if coverage is None:
            refuse("run", str(path), "its report has no coverage: no load was made, or an older release wrote it")
        return read_back(coverage)
    except OSError as error:
        refuse("run", str(path), f"{file.name} cannot be read: {error.strerror or error}")
    except ValidationError as error:
        faults = faults_of(error, ReportExtract)
        refuse("run", str(path), "; ".join([f"{damaged}: {faults[0]}", *map(str, faults[1:_FAULTS_TOLD])]))
    except ValueError as error:
        refuse("run", str(path), f"{damaged}: {str(error).splitlines()[0]}")
