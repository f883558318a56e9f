"""Writes the dashboards' JSON: `python -m dashboards.build`."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import engine, pool_pressure, soak_overview

FOLDER = Path(__file__).parent / "json"
BUILDERS = {
    "pool-pressure": pool_pressure.build,
    "soak-overview": soak_overview.build,
    "engine": engine.build,
}


def rendered() -> dict[str, str]:
    """Each dashboard's JSON, by file name."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {f"{name}.json": encoder.encode(build().build()) + "\n" for name, build in BUILDERS.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)


if __name__ == "__main__":
    main()
