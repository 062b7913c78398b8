"""An MCP server by hand, which starts at once and misbehaves as its arguments say.

`stubborn` stays when its input ends and when it is asked to end, as does a child of it; `noisy` says what is no JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

TOOLS: dict[str, object] = {
    "tools": [
        {"name": name, "description": "A tool.", "inputSchema": {"type": "object"}}
        for name in ("pids", "mute", "malformed", "structured", "resource", "nothing", "kill")
    ]
}
child = None


def text(said: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": said}]}


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    if method == "initialize":
        about = {"name": "bare", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return TOOLS
    match params.get("name"):
        case "pids":
            return text(json.dumps([os.getpid(), *([child.pid] if child else [])]))
        case "malformed":
            return {"content": 3}
        case "structured":
            return {"content": [], "structuredContent": {"Zürich": 1}}
        case "resource":
            return {"content": [{"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hidden"}}]}
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "nothing":
            return {"content": [], "isError": True}
    return None


if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
for line in sys.stdin:
    if "noisy" in sys.argv:
        print("Hello, world", flush=True)
    message = json.loads(line)
    if "id" not in message:
        continue
    reply: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] not in ("initialize", "tools/list", "tools/call"):
        reply["error"] = {"code": -32601, "message": "no such method"}
    elif (result := answer(message["method"], message.get("params", {}))) is not None:
        reply["result"] = result
    else:
        continue
    print(json.dumps(reply), flush=True)
while "stubborn" in sys.argv:
    time.sleep(1)
