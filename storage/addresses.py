"""Addresses as they may be shown and probed."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from importlib.metadata import entry_points

from agent_r1.errors import ConfigError, TrackingError

PROBE_SECONDS = 5.0
KINDS = {"http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc"}
_HOST = re.compile("https?://[^/:]")
_LOGIN = re.compile(r"//\S*@")  # up to the last @: a password may hold a slash


def without_login(text: str) -> str:
    """A text without the user and password of an address in it."""
    return _LOGIN.sub("//", text)


def check_kind(uri: str) -> None:
    """ConfigError where it is no address that MLflow could take: of no kind that it or a plugin of it knows."""
    kind = uri.partition(":")[0].partition("+")[0]  # as in mysql+pymysql; a folder MLflow has given up
    plugins = {each.name for each in entry_points(group="mlflow.tracking_store")}
    if kind not in KINDS | plugins or (kind in {"http", "https"} and not _HOST.match(uri)):
        raise ConfigError(
            f"MLFLOW_TRACKING_URI: {without_login(uri)} is no address of MLflow; expected http://HOST:PORT, a "
            "server's, or sqlite:///FILE; unset it to have MLflow in the home"
        )


def check_reachable(uri: str) -> None:
    """TrackingError where no server answers, with whatever, at MLflow's http(s) address. MLflow itself would try for
    minutes."""
    if not uri.startswith(("http://", "https://")):
        return
    shown = without_login(uri)
    try:
        urllib.request.urlopen(shown, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TrackingError(f"MLflow at {shown} (MLFLOW_TRACKING_URI) does not answer: {error}") from error
