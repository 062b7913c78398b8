"""A stand-in for vLLM's server with its endpoints, which misbehaves as the file $FAKE_VLLM says, a word a line.

It answers each request with the token that its seed names, and then the request's first end.
"""

from __future__ import annotations

import argparse
import json
import os
import socketserver
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

STATE = {"version": "default", "weights": "", "reloads": 0, "completions": 0}
SEEN: list[dict] = []
POSTED: list[str] = []


def misbehaves(word: str) -> bool:
    """Whether the word is there; once only where it ends with !, over all servers."""
    path = Path(os.environ["FAKE_VLLM"])
    words = path.read_text().split() if path.exists() else []
    if f"{word}!" in words:
        words.remove(f"{word}!")
        path.write_text("\n".join(words))
        return True
    return word in words


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def say(self, content: object, status: int = 200) -> None:
        text = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self.say({})
        elif path == "/weight_info":
            self.say({"weight_version": STATE["version"]})
        elif path == "/server_info":
            mode = next((mode for mode in ("raw_logprobs", "raw_logits") if misbehaves(mode)), "processed_logprobs")
            length = 16 if misbehaves("short") else 1024
            model = {"logprobs_mode": mode, "max_model_len": length}
            self.say(
                {"vllm_config": {"model_config": model, "lora_config": {} if misbehaves("no-lora") else {"r": 16}}}
            )
        elif path == "/openapi.json":
            known = ["/collective_rpc", "/update_weight_version", "/reset_prefix_cache", "/v1/load_lora_adapter"]
            known += [] if misbehaves("no-tokens") else ["/inference/v1/generate"]
            self.say({"paths": {key: {} for key in known}})
        elif path == "/state":
            self.say({**STATE, "pid": os.getpid(), "arguments": sys.argv[1:], "seen": SEEN, "posted": POSTED})
        else:
            self.say({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        POSTED.append(self.path)
        if path == "/inference/v1/generate":
            self.generate(body)
        elif path == "/collective_rpc":
            if misbehaves("no-reload"):
                self.say({"error": "the weights do not fit"}, 500)
                return
            STATE["reloads"] += 1
            STATE["weights"] = body["kwargs"]["weights_path"]
            self.say({"results": [None]})
        elif path == "/update_weight_version":
            STATE["version"] = body["new_version"]
            self.say({"success": True})
        elif path == "/v1/load_lora_adapter":
            STATE["adapter"] = body
            self.say("Success: LoRA adapter 'policy' added successfully.")
        elif path in ("/sleep", "/wake_up"):
            self.say({}, 500 if misbehaves("sleepless") else 200)
        elif path == "/reset_prefix_cache":
            self.say({"success": not misbehaves("keeps-cache")})
        else:
            self.say({"detail": "Not Found"}, 404)

    def generate(self, body: dict) -> None:
        SEEN.append(body)
        STATE["completions"] += 1
        if misbehaves("die"):
            print("ValueError: out of cheese", flush=True)
            os._exit(3)
        if misbehaves("hang"):
            time.sleep(60)
        sampling = body["sampling_params"]
        ids = [sampling["seed"], sampling["stop_token_ids"][0]][: sampling["max_tokens"]]
        reason = "stop" if len(ids) == 2 else "length"
        reason = "abort" if misbehaves("abort") else reason
        version = "someone else's" if misbehaves("other-weights") else STATE["version"]
        reason = "length" if misbehaves("length-with-end") else reason
        spans = [
            {"version": each, "start": 0, "end": 1} for each in (version, "late")[: 1 + misbehaves("two-versions")]
        ]
        scored = ids[1:] if misbehaves("short-logprobs") else ids
        choice = {
            "token_ids": [] if misbehaves("empty") else ids,
            "finish_reason": reason,
            "weight_versions": spans,
            "logprobs": {"content": [{"token_id": each, "logprob": -0.5} for each in scored]},
        }
        self.say({"odd": True} if misbehaves("odd") else {"choices": [choice]})


class OnSocket(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class OnPort(socketserver.ThreadingTCPServer):
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int)
    parser.add_argument("--model")
    given, _ = parser.parse_known_args()
    if misbehaves("no-start"):
        sys.exit("ValueError: no such model architecture")
    if misbehaves("slow-start"):
        time.sleep(60)
    STATE["weights"] = given.model
    with Path(os.environ["FAKE_VLLM"]).with_name("starts").open("a") as starts:
        starts.write("started\n")
    subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", given.uds or "on a port"]
    )  # as an engine core
    server = OnSocket(given.uds, Handler) if given.uds else OnPort(("127.0.0.1", given.port), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
