"""SGLang's command line as data: options told apart, replaced, read, and refused when the controller owns them.

SGLang parses with argparse, which takes `--option value`, `--option=value`, and any unambiguous beginning of an
option's name; all three forms are understood here, and nowhere else is an argument list looked through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Option names that decide what the controller decides, and what to use instead.
OWNED: dict[str, str] = {
    "--model-path": "use engine.model",
    "--model": "use engine.model",
    "--served-model-name": "the controller tells its own server by it",
    "--host": "the server is reached on 127.0.0.1 only",
    "--port": "use engine.port",
    "--page-size": "use engine.page_size",
    "--max-total-tokens": "use engine.pool_pages",
    "--random-seed": "use load.seed",
    "--device": "the engine's profile decides it",
    "--attention-backend": "the engine's profile decides it",
    "--prefill-attention-backend": "the engine's profile decides it",
    "--decode-attention-backend": "the engine's profile decides it",
    "--enable-metrics": "always on",
    "--config": "a file of arguments could set any of the others; give the arguments themselves",
    "--dp-size": "each replica would have a page pool of its own; run them as engines of their own",
    "--data-parallel-size": "each replica would have a page pool of its own; run them as engines of their own",
    "--enable-dp-attention": "each replica would have a page pool of its own; run them as engines of their own",
    "--nnodes": "a run is on one machine",
    "--disaggregation-mode": "prefill and decode servers are not driven separately",
    "--encoder-only": "it has no page pool",
    "--is-embedding": "an embedding model does not decode",
    "--smg-grpc-mode": "the load is HTTP",
    "--grpc-mode": "the load is HTTP",
    "--use-ray": "the engine's processes have to be the controller's own descendants",
    "--api-key": "the server listens on 127.0.0.1 only and needs no key",
    "--ssl-keyfile": "the load is plain HTTP on 127.0.0.1",
    "--ssl-certfile": "the load is plain HTTP on 127.0.0.1",
    "--help": "see SGLang's documentation",
}
# Owned as well when the engine runs the project's own tiny model.
OWNED_WITH_TINY_MODEL: dict[str, str] = {
    "--load-format": "the tiny model brings its own weights",
    "--skip-tokenizer-init": "always on with the tiny model",
    "--tokenizer-path": "the tiny model brings its own",
}


@dataclass(frozen=True)
class Option:
    """One option as given: its name as written, and its words, the name included."""

    name: str
    words: tuple[str, ...]

    def means(self, name: str) -> bool:
        """Whether argparse may take this option for the one called `name`."""
        given = self.name.replace("_", "-")
        return len(given) > len("--") and name.startswith(given)

    @property
    def value(self) -> str | None:
        """The first value as given, `=` or not; None for an option without any."""
        _, equals, value = self.words[0].partition("=")
        return value if equals else next(iter(self.words[1:]), None)


def split_options(words: Sequence[str]) -> tuple[list[Option], list[str]]:
    """Options with their values, and the words before the first option, which belong to none."""
    options: list[Option] = []
    stray: list[str] = []
    for word in words:
        if word.startswith("--") or word == "-h":
            name = "--help" if word == "-h" else word.partition("=")[0]
            options.append(Option(name, (word,)))
        elif options:
            options[-1] = Option(options[-1].name, (*options[-1].words, word))
        else:
            stray.append(word)
    return options, stray


def options_given(words: Sequence[str], names: Sequence[str]) -> dict[str, str | None]:
    """What argparse makes of an argument list, of the options with these names: each one's value, where it is given.

    The last one counts. An abbreviation that fits several of the names is none of them: SGLang would not start.

    Args:
        names: full names, such as `--page-size`.
    """
    given: dict[str, str | None] = {}
    for option in split_options(words)[0]:
        meant = [option.name] if option.name in names else [name for name in names if option.means(name)]
        if len(meant) == 1:
            given[meant[0]] = option.value
    return given


def refused_arguments(words: Sequence[str], *, tiny_model: bool) -> list[str]:
    """Why these arguments of a user cannot be passed on to SGLang: one message each, empty when all can."""
    owned = {**OWNED, **(OWNED_WITH_TINY_MODEL if tiny_model else {})}
    options, stray = split_options(words)
    messages = [f"{word!r} belongs to no option; write --option value or --option=value" for word in stray]
    for option in options:
        exact = option.name if option.name in owned else None
        name = exact or next((name for name in owned if option.means(name)), None)
        if name is not None:
            shown = option.name if option.name == name else f"{option.name} (taken for {name})"
            messages.append(f"{shown} is set by lastpage: {owned[name]}")
    return messages


def layered(*layers: Iterable[str]) -> list[str]:
    """All layers' arguments in order; an option of a later layer replaces the same option of the earlier ones.

    An abbreviated option does not: it stays behind what it repeats, and argparse takes the last one.
    """
    result: list[Option] = []
    for layer in layers:
        options, _ = split_options(list(layer))
        names = {option.name for option in options}
        result = [*(old for old in result if old.name not in names), *options]
    return [word for option in result for word in option.words]
