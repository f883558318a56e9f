"""A simulated engine: a process that speaks SGLang's HTTP and decides with the project's model of its scheduler.

Nothing imports this; the launch names it by its module, as it names SGLang's. See docs/simulation.md.
"""
