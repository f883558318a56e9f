"""What keeps a spec from working, found before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loadgen.coverage import Coverage
from loadgen.scenarios import SCENARIOS, NoOptions, Scenario, Streamed
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import ReleaseRules, rules_for
from loadgen.sglang.server import EngineNeeds, ServerConfiguration
from service.engine.check import EngineCheck, check
from service.engine.installation import Engine
from service.engine.model_facts import ModelFacts, ModelNotUsable, read_model
from service.engine.process.arguments import layered, refused_arguments
from service.engine.process.ports import PortUnavailable, check_port
from service.engine.registry import EngineRegistry
from service.engine.tiny_model import write_tiny_model
from service.errors import EngineError
from service.execution.server_configuration import refused_numbers, server_configuration
from service.home import Home
from service.measures import COVERAGE_SHARE, LATENCIES
from service.plugin.settings import Profile
from service.spec.faults import Fault, faults_of
from service.spec.spec import RunSpec
from service.spec.thresholds import Threshold


@dataclass(frozen=True)
class Prepared:
    """A spec with everything that it refers to.

    Attributes:
        server: how the engine will schedule, from all arguments that it is launched with.
    """

    engine: Engine
    check: EngineCheck
    model: Path
    facts: ModelFacts
    scenario: type[Scenario[Any]]
    options: NoOptions
    server: ServerConfiguration

    @property
    def release(self) -> ReleaseRules:
        """How the engine's release schedules."""
        return rules_for(self.check.version)

    @property
    def needs(self) -> EngineNeeds:
        return self.scenario.engine_needs(self.server.pool, self.options)


def prepare(spec: RunSpec, home: Home) -> tuple[Prepared | None, list[Fault]]:
    """Look up all that a spec refers to. It blocks: to ask an engine's interpreter takes seconds the first time.

    Returns:
        what was prepared, None when there are faults; and every fault that was found.
    """
    pool = Pool(spec.engine.page_size, spec.engine.pool_pages)
    scenario, options, faults = _scenario(spec, pool)
    faults += [
        Fault(field="engine.args", value=list(spec.engine.args), message=message)
        for message in refused_arguments(spec.engine.args, tiny_model=spec.engine.model is None)
    ]
    faults += _port(spec)
    faults += _starve_seconds(spec)
    engine, checked, engine_faults = _engine(spec, home)
    faults += engine_faults
    model, facts, model_faults = _model(spec, home, checked.profile if checked else Profile.REHEARSAL)
    faults += model_faults
    server = None
    if scenario is not None and options is not None and facts is not None:
        faults += _context(spec, scenario, options, pool, facts)
    if scenario is not None and options is not None:
        # The controller's own arguments hold none of these: see `arguments.OWNED`.
        arguments = layered(scenario.engine_needs(pool, options).arguments, spec.engine.args)
        refused = refused_numbers(spec.engine.args, pool.page_size)
        faults += [Fault(field="engine.args", value=list(spec.engine.args), message=message) for message in refused]
        rules = rules_for(checked.version if checked else None).rules
        server = server_configuration(pool, arguments, rules)
        faults += _coverage(spec, server)
        faults += _latencies(spec, scenario, options)
    if faults or not (engine and checked and model and facts and scenario and options is not None and server):
        return None, faults
    return Prepared(engine, checked, model, facts, scenario, options, server), []


def changed_since(spec: RunSpec, prepared: Prepared) -> list[Fault]:
    """What of a spec that could work cannot any more: looked at just before the launch, and quickly."""
    faults = _port(spec)
    if not prepared.engine.python.exists():
        message = f"its interpreter {prepared.engine.python} is gone"
        faults.append(Fault(field="engine.name", value=prepared.engine.name, message=message))
    try:
        read_model(prepared.model)
    except ModelNotUsable as error:
        faults.append(Fault(field="engine.model", value=spec.engine.model, message=str(error)))
    return faults


def _scenario(spec: RunSpec, pool: Pool) -> tuple[type[Scenario[Any]] | None, NoOptions | None, list[Fault]]:
    scenario = SCENARIOS.get(spec.load.scenario)
    if scenario is None:
        allowed = f"no such scenario; allowed: {', '.join(SCENARIOS)}"
        return None, None, [Fault(field="load.scenario", value=spec.load.scenario, message=allowed)]
    try:
        options: NoOptions = scenario.Options.model_validate(spec.load.options)
    except ValidationError as error:
        return scenario, None, faults_of(error, scenario.Options, "load.options")
    faults = scenario.faults(pool, options)
    if faults:
        return scenario, None, [Fault(field=fault.field, value=fault.value, message=fault.message) for fault in faults]
    return scenario, options, []


def _port(spec: RunSpec) -> list[Fault]:
    if spec.engine.port is None:
        return []
    try:
        check_port(spec.engine.port)
    except PortUnavailable as error:
        return [Fault(field="engine.port", value=spec.engine.port, message=str(error))]
    return []


def _starve_seconds(spec: RunSpec) -> list[Fault]:
    starve, hang = spec.load.starve_seconds, spec.engine.hang_seconds
    if starve is None or starve < hang:
        return []
    message = f"a request that starves would be taken for a hang; allowed: less than engine.hang_seconds, {hang:g}"
    return [Fault(field="load.starve_seconds", value=starve, message=message)]


def _engine(spec: RunSpec, home: Home) -> tuple[Engine | None, EngineCheck | None, list[Fault]]:
    registry = EngineRegistry(home)
    try:
        engine = registry.default() if spec.engine.name is None else registry.get(spec.engine.name)
    except EngineError as error:
        return None, None, [Fault(field="engine.name", value=spec.engine.name, message=str(error))]
    try:
        checked = check(engine, home=home)
    except EngineError as error:
        return engine, None, [Fault(field="engine.name", value=engine.name, message=str(error))]
    if checked.problem is not None:
        message = f"cannot be run: {checked.problem}"
        return engine, checked, [Fault(field="engine.name", value=engine.name, message=message)]
    return engine, checked, []


def _model(spec: RunSpec, home: Home, profile: Profile) -> tuple[Path | None, ModelFacts | None, list[Fault]]:
    try:
        if spec.engine.model is None:
            model = write_tiny_model(home.ensure().models, profile)
        else:
            model = Path(spec.engine.model).expanduser().absolute()
        return model, read_model(model), []
    except ModelNotUsable as error:
        return None, None, [Fault(field="engine.model", value=spec.engine.model, message=str(error))]
    except RuntimeError:  # of expanduser
        message = "there is no such user; give the path of the model's folder"
        return None, None, [Fault(field="engine.model", value=spec.engine.model, message=message)]
    except OSError as error:
        message = f"the tiny model cannot be written: {error}"
        return None, None, [Fault(field="engine.model", value=spec.engine.model, message=message)]


def _coverage(spec: RunSpec, server: ServerConfiguration) -> list[Fault]:
    """What is asked of the coverage of the edge where nothing of it can be reached."""
    thresholds = map(Threshold.parse, spec.thresholds)
    texts = [str(each) for each in thresholds if each.measure == COVERAGE_SHARE and not each.holds(0)]
    if spec.load.until_coverage is None and not texts:
        return []
    if Coverage(server).reachable_tight:
        return []
    pool = server.pool
    message = (
        f"on {pool.pages} pages of {pool.page_size}, launched as this is, no step at the edge can be reached, and the "
        "share that is covered stays 0; allowed: none, or a larger pool"
    )
    if spec.load.until_coverage is not None:
        return [Fault(field="load.until_coverage", value=spec.load.until_coverage, message=message)]
    return [Fault(field="thresholds", value=text, message=message) for text in texts]


def _latencies(spec: RunSpec, scenario: type[Scenario[Any]], options: NoOptions) -> list[Fault]:
    """What is asked of latencies where none are measured."""
    if scenario.streams(options):
        return []
    streaming = " or ".join(name for name, other in SCENARIOS.items() if other.streamed is Streamed.ALL)
    message = (
        f"{scenario.name} has no answers streamed here, so no latencies are measured; allowed: no threshold on them, "
        f"or a scenario that streams, such as {streaming}"
    )
    thresholds = map(Threshold.parse, spec.thresholds)
    return [
        Fault(field="thresholds", value=str(each), message=message)
        for each in thresholds
        if each.measure.startswith(LATENCIES)
    ]


def _context(
    spec: RunSpec, scenario: type[Scenario[Any]], options: NoOptions, pool: Pool, facts: ModelFacts
) -> list[Fault]:
    longest = scenario.longest_request(pool, options)
    if facts.longest_request is None or longest <= facts.longest_request:
        return []
    message = (
        f"{scenario.name} sends requests of up to {longest} tokens on {pool.pages} pages of {pool.page_size}, "
        f"the model takes {facts.context_length}; use a smaller pool or page size"
    )
    return [Fault(field="engine.pool_pages", value=spec.engine.pool_pages, message=message)]
