"""What a user names as `module:name` in a configuration: found, imported, and digested so that a change is noticed.

What the object has to be is left to who asked for it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from agent_r1.errors import ConfigError

_LISTED = 300  # characters of names that a module offers


def load_object(path: str, key: str) -> object:
    """The object at `module:name` or `module:name.attribute`; ConfigError names the key, the path and the reason.

    The module is looked for as Python does, and last in the working directory, where a user keeps a file beside the
    configuration: what is installed cannot be shadowed from there.
    """
    module_name, _, names = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *names.split(".")]):
        raise ConfigError(f"{key}: {path!r}: expected module:name, such as my_tools:population")
    found: object = _module(module_name, f"{key}: {path!r}")
    for done, name in enumerate(names.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            holder = ".".join([module_name, *names.split(".")[:done]])
            raise ConfigError(f"{key}: {path!r}: {holder} has no {name!r}; it has {_offers(found)}") from None
    return found


def source_digest(found: object) -> str:
    """The SHA-256 of the file of the module that an object (for an instance: its class) is from; "" without a file."""
    module = found if isinstance(found, ModuleType) else inspect.getmodule(found)
    file = getattr(module, "__file__", None)
    if not file or not Path(file).is_file():
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _module(name: str, where: str) -> ModuleType:
    here = str(Path.cwd())
    sys.path.append(here)
    importlib.invalidate_caches()  # the file may be younger than the last look into its folder
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{where}: there is no module {error.name!r}, neither installed nor in the working directory {here}"
            ) from None
        raise ConfigError(f"{where}: {_failure(error)}") from error
    except (Exception, SystemExit) as error:  # the border to other people's code
        raise ConfigError(f"{where}: {_failure(error)}") from error
    finally:
        _take_out(here)


def _take_out(folder: str) -> None:
    """Take the last of this folder out of the search path, which the module may have changed, even to nothing."""
    for position in reversed(range(len(sys.path))):
        if sys.path[position] == folder:
            del sys.path[position]
            return


def _failure(error: BaseException) -> str:
    """What went wrong inside the module, and at which line of which file."""
    if isinstance(error, SyntaxError):
        return f"the module is not Python: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""  # the first is ours
    return f"importing the module failed: {type(error).__name__}: {error}{place}"


def _offers(holder: object) -> str:
    """The public names of a module or class, those that it only imported last."""
    if not isinstance(holder, ModuleType | type):
        return "no names of its own"
    own = holder.__name__ if isinstance(holder, ModuleType) else holder.__module__
    names = {name: value for name, value in vars(holder).items() if not name.startswith("_")}
    order = sorted(names, key=lambda name: (inspect.ismodule(names[name]) or _home(names[name], own) != own, name))
    listed = ", ".join(order) or "no public names"
    return listed if len(listed) <= _LISTED else listed[:_LISTED].rpartition(",")[0] + ", ..."


def _home(value: object, otherwise: str) -> object:
    return getattr(value, "__module__", otherwise)
