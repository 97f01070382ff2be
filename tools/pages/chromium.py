"""A headless Chromium, driven over a pipe by its own protocol: no package but the browser. For tests, benchmarks and pictures.

with Chromium() as browser:
    browser.open(path.as_uri())
    browser.evaluate("document.title")
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking "
    "--disable-component-update --use-fake-device-for-media-stream --use-fake-ui-for-media-stream --remote-debugging-pipe"
)
PATIENCE = 90  # seconds: machines that test are busy


class Chromium:
    def __init__(self, *flags: str, width: int = 900, height: int = 900) -> None:
        assert FOUND is not None
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.to = os.pipe()
        self.from_, theirs_out = os.pipe()
        # The browser reads commands from its file 3 and answers on its file 4.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        browser = [
            FOUND,
            *FLAGS.split(),
            f"--window-size={width},{height}",
            f"--user-data-dir={self.folder.name}",
            *flags,
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", *browser, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.session = b"", 0, ""
        self.requests: list[str] = []  # addresses that the page asked for
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.from_)
        self.folder.cleanup()

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.from_], [], [], PATIENCE)
            assert ready, "Chromium does not answer"
            more = os.read(self.from_, 1 << 20)
            assert more, "Chromium has ended"
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        made: dict[str, Any] = json.loads(message)
        return made

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Until an expression is true; its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.1)
        return value

    def text(self, element: str) -> str:
        value: str = self.evaluate(f"document.getElementById({element!r}).textContent")
        return value

    def choose(self, element: str, *files: Path) -> None:
        """Files into an input of the page, as a person would choose them."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=f"#{element}")["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, *files: Path) -> None:
        """Files onto the page."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)

    def key(self, name: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def cpu_seconds(self) -> float:
        """Processor time of the main threads of all pages so far (Linux)."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        total = 0
        for process in parents:
            above = process
            while above in parents and above != self.process.pid:
                above = parents[above]
            with contextlib.suppress(OSError):
                if above == self.process.pid and b"--type=renderer" in Path(f"/proc/{process}/cmdline").read_bytes():
                    total += int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
        return total / 1e9
