"""Processes forked from a server that has imported everything: they start at once, and kills hit work, not imports."""

import multiprocessing

PRELOADED = (
    "regmixup.study.runner",
    "regmixup.cli.train",
    "regmixup.cli.study",
    "regmixup.report.output",
    "regmixup.data.readers.embedded",
    "torch._dynamo",
    "scipy.special",
    "tests.training.elastic",
    "tests.training.test_kill",
    "tests.study.test_kill",
)
"""One list for all tests: a test process has one server, and the first child decides what it imports."""


def fork_server() -> multiprocessing.context.BaseContext:
    """Return a context whose processes are forks of the server of this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context
