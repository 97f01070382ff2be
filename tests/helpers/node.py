"""The script of the web page without the page, run by node: jobs in, answers out, all in one process.

A job names a packed file and what to do with it; an answer is what the page would compute, or the sentence it would say.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from bcnn.exports import web

DRIVER = """
const fs = require("fs"), packed = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const text = (numbers) => Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength).toString("base64");
(async () => {
  const { engine, jobs } = JSON.parse(fs.readFileSync(0, "utf8")), module = await WebAssembly.compile(packed(engine)), answers = [];
  for (const job of jobs) {
    try {
      if (job.resize) {
        const { width, height, size, crop } = job.resize;
        answers.push({ pixels: text(fit(packed(job.pixels), width, height, size, crop)) });
        continue;
      }
      const program = await openPacked(packed(job.file)), answer = { shapes: program.shapes, seeds: program.seeds.length };
      if (job.run) {
        const made = await Engine.make(module, program);
        answer.equal = made.verify();
        answer.maps = (job.maps ? made.maps(packed(job.maps)) : []).map(text);
        if (job.pixels) answer.logits = text(made.run(packed(job.pixels)));
      }
      answers.push(answer);
    } catch (error) {
      answers.push({ error: error.message, sentence: error instanceof UserError });
    }
  }
  fs.writeFileSync(1, JSON.stringify(answers));
})();
"""

needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed: the page's script cannot run"
)


def encoded(content: bytes | np.ndarray) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.tobytes()).decode()


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def answers(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The page's answers to jobs, in their order."""
    script = f'"use strict";\n{web.core()}\n{DRIVER}'
    given = json.dumps({"engine": encoded(web.ENGINE.read_bytes()), "jobs": jobs})
    done = subprocess.run(["node", "-e", script], input=given, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    made: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(made) == len(jobs)
    return made
