"""What surrounds a run and has to be there before any work: files, the device, servers, the user's own code.

Each check imports what it needs, so that commands which only look at a home answer at once. How a run begins is left
to start.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

from agent_r1.config import Config
from agent_r1.errors import ConfigError, TrackingError
from agent_r1.questions.records import Question
from agent_r1.sections import SearchConfig
from storage.addresses import check_kind, check_reachable
from tasks.context import RunContext

log = logging.getLogger("agent_r1.surroundings")


def check_files(config: Config) -> None:
    """ConfigError names the key of a file or folder that is not there."""
    for key, path in (
        ("data.path", config.data.path),
        ("data.validation_path", config.data.validation_path),
        ("search.corpus", config.search.corpus),
    ):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{key}: {path}: no such file")
    model = config.model.path
    if not Path(model).expanduser().is_dir() and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise ConfigError(f"model.path: {model}: no such folder; a model of the hub is OWNER/NAME")
    if config.data.databases is not None and not Path(config.data.databases).is_dir():
        raise ConfigError(f"data.databases: {config.data.databases}: no such folder")


def check_surroundings(context: RunContext) -> None:
    """What would otherwise fail after minutes: a device that is not there, a server that does not answer."""
    from agent_r1.model import resolve_device

    resolve_device(context.config.device)
    if context.config.rollout.engine == "vllm":
        from tasks import engine

        engine.check(context.config)
    check_own(context.config, context)
    check_search(context.config.search)
    check_tracking(context)


def check_own(config: Config, context: RunContext | None = None) -> None:
    """What is the user's own code: there, of the right form, and working on one question, of those that the run has.

    MCP servers stay open for what follows; `agent_r1.own.close` ends them.
    """
    from agent_r1 import own

    if own.names(config) or config.mcp:
        own.try_out(config, _a_question(config, context))


def _a_question(config: Config, context: RunContext | None) -> Question:
    from agent_r1.dataset import first_question
    from tasks import data

    path = config.data.path
    if context is None or path is None or Path(path).is_file():
        return first_question(config)
    (first,) = data.question_ids(context, "train")[:1]
    return data.load_questions(context, [first])[first]


def check_search(search: SearchConfig) -> None:
    """ConfigError where there is a search server that does not answer."""
    if search.url is not None:
        from agent_r1.tools import search_server

        search_server.check(search.url, search.timeout)


def check_tracking(context: RunContext) -> None:
    """Warn where there is an MLflow server that does not answer: the run goes on, and is shown once it does.

    ConfigError where it cannot be one's address.
    """
    if context.tracking_uri is not None:
        check_kind(context.tracking_uri)
        try:
            check_reachable(context.tracking_uri)
        except TrackingError as error:
            log.warning("%s; the run goes on, and each publish tries again", error)
