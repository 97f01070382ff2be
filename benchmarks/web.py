"""In the browser: the page's engine against onnxruntime-web with int8 MobileNetV1 of the same input size, in one run in one tab.

    npm install onnxruntime-web
    python -m benchmarks.web --ort node_modules/onnxruntime-web/dist --out benchmarks/results/web-icelake

Both are WebAssembly with SIMD and have one thread. Each is checked first: our engine by the test vectors of its file, with ==;
MobileNetV1 against the literal meaning of its model. Then they take turns. Beside the times of the page's clock stands the processor
time of the page's thread: where others use the machine, too, it is what can be compared. `--out NAME` writes NAME.json and NAME.txt.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages.chromium import Chromium

from bcnn.base.files import write_atomic
from bcnn.base.machine import facts
from bcnn.bench import mobilenet
from bcnn.bench.rivals import in_integers, job_of
from bcnn.exports import web
from bcnn.nets.config import preset
from bcnn.packed import packfile, shipped

CALLS, WARM = 4, 8  # timed calls of a turn; turns that do not count

SCRIPT = """
"use strict";
async function bytes(name) {
  return new Uint8Array(await (await fetch(name)).arrayBuffer());
}
async function prepare(model, rival) {
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = "/ort/";
  const module = await WebAssembly.compile(await bytes("engine.wasm")), program = await openPacked(await bytes(model));
  const engine = await Engine.make(module, program), equal = engine.verify();
  const session = await ort.InferenceSession.create(await bytes(rival), { executionProviders: ["wasm"] });
  const [side] = program.shapes[0], pixels = await bytes("image.raw");
  const image = new ort.Tensor("uint8", pixels, [1, side, side, 3]), other = async () => (await session.run({ image }))[session.outputNames[0]];
  globalThis.contest = { ours: () => engine.run(pixels), theirs: other };
  return { equal, vectors: program.seeds.length, logits: Array.from((await other()).data) };
}
// Milliseconds of `count` calls, after one that brings this contestant's data back into the caches.
async function turn(name, count) {
  const times = [];
  await contest[name]();
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await contest[name]();
    times.push(performance.now() - start);
  }
  return times;
}
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, with the headers by which a page gets a clock of microseconds."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def models(folder: Path) -> dict[str, Path]:
    """Packed files, by what the table calls them."""
    floats, integers = folder / "floats.bcnn", folder / "integers.bcnn"
    paper = job_of(preset("imagenet"))
    packfile.save(paper.program, floats)
    packfile.save(in_integers(paper).program, integers)
    return {
        "the paper's network in float32": floats,
        "the paper's network in integers": integers,
        "imagenette": shipped.find("imagenette"),
    }


def measure(browser: Chromium, address: str, folder: Path, name: str, file: Path, rounds: int) -> dict[str, Any]:
    program = packfile.read(file)
    side, classes = program.shapes[0][0], program.shapes[-1][2]
    model, macs = mobilenet.mobilenet_model(side, classes)
    image = mobilenet.mobilenet_image(side)
    (folder / "model.bcnn").write_bytes(file.read_bytes())
    (folder / "rival.onnx").write_bytes(model.SerializeToString())
    (folder / "image.raw").write_bytes(image.tobytes())
    browser.open(f"{address}/index.html")
    browser.wait("typeof prepare === 'function' && typeof ort === 'object'")
    checked = browser.evaluate("prepare('model.bcnn', 'rival.onnx')")
    if checked["equal"] != checked["vectors"] or not checked["vectors"]:
        raise SystemExit(f"{name}: {checked['equal']} of {checked['vectors']} test vectors are equal")
    theirs = mobilenet._check(model, image, np.array(checked["logits"], np.float32).reshape(1, -1))
    runs: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}
    for done in range(-WARM, rounds):  # browsers compile again what is hot: the first turns do not count
        for who in runs:
            before = browser.cpu_seconds()
            taken = browser.evaluate(f"turn({who!r}, {CALLS})")
            used = (browser.cpu_seconds() - before) / (CALLS + 1) * 1e3
            if done >= 0:
                runs[who] += taken
                cpu[who].append(used)
    checks = [f"{checked['equal']} vectors ==", theirs]
    row = {"network": name, "side": side, "rival_macs": macs, "rounds": rounds, "calls": CALLS, "checked": checks}
    for who, taken in runs.items():
        row[who] = {"min": min(taken), "median": float(np.median(taken)), "cpu": min(cpu[who])}
    return row


def table(row: dict[str, Any]) -> str:
    def shown(who: str) -> str:
        return f"{row[who]['min']:.2f} ({row[who]['median']:.2f}), cpu {row[who]['cpu']:.2f}"

    def ratio(what: str) -> str:
        return f"{row['ours'][what] / row['theirs'][what]:.2f}"

    return "\n".join(
        (
            f"{row['network']} at {row['side']} x {row['side']}; ms, min (median) of {row['rounds']} turns of {row['calls']}, least processor time of a turn",
            f"  this engine                        {shown('ours')}",
            f"  onnxruntime-web, MobileNetV1 int8  {shown('theirs')}; {row['rival_macs'] / 1e6:.0f} M MACs",
            f"  ratio                              {ratio('min')} ({ratio('median')}), cpu {ratio('cpu')}",
            f"  checked: {'; '.join(row['checked'])}",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ort", type=Path, default=Path("node_modules/onnxruntime-web/dist"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not (given.ort / "ort.wasm.min.js").is_file():
        raise SystemExit(
            f"no onnxruntime-web in {given.ort}: npm install onnxruntime-web, then --ort node_modules/onnxruntime-web/dist"
        )
    version = json.loads((given.ort.parent / "package.json").read_text())["version"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ort").symlink_to(given.ort.resolve())
        (folder / "engine.wasm").write_bytes(web.ENGINE.read_bytes())
        scripts = f'<script src="ort/ort.wasm.min.js"></script><script>{web.core()}{SCRIPT}</script>'
        (folder / "index.html").write_text(f"<!doctype html><meta charset='utf-8'>{scripts}", encoding="utf-8")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=name))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with Chromium() as browser:
            known = browser.call("Browser.getVersion")["product"]
            rows = [
                measure(browser, address, folder, name, file, given.rounds) for name, file in models(folder).items()
            ]
        server.shutdown()
    conditions = {**facts(1), "browser": known, "onnxruntime-web": version}
    lines = [f"{key}: {value}" for key, value in conditions.items()] + [table(row) for row in rows]
    print("\n".join(lines))
    if given.out:
        write_atomic(given.out.with_suffix(".json"), json.dumps({"facts": conditions, "rows": rows}, indent=2).encode())
        write_atomic(given.out.with_suffix(".txt"), ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
