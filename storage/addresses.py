"""Addresses as they may be shown and probed."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request

from agent_r1.errors import TrackingError

PROBE_SECONDS = 5.0
_LOGIN = re.compile(r"//\S*@")  # up to the last @: a password may hold a slash


def without_login(text: str) -> str:
    """A text without the user and password of an address in it."""
    return _LOGIN.sub("//", text)


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
