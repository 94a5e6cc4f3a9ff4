"""A stand-in for the training program: the same protocol, the standard library only, no training.

``python program.py PLAN {train,score} --request request.json``. PLAN is a JSON file: ``steps`` and
``pause`` (seconds a step), and for an attempt's number (or ``*``) at which step to do what fault.
It watches no parent and its grandchild has a session of its own: what ends them is the launcher.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

RANK = int(os.environ.get("RANK", "0"))


class Program:
    def __init__(self, plan, request):
        self.request, self.output = request, request["output"]
        faults = plan.get("attempts", {})
        self.fault = faults.get(str(request["attempt"])) or faults.get("*") or {}
        self.steps, self.pause = plan.get("steps", 3), plan.get("pause", 0.0)
        self.seq, self.told = 0, False
        if not self.fault.get("deaf"):
            signal.signal(signal.SIGTERM, self.on_notice)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def on_notice(self, *_):
        self.told = True

    def event(self, kind, **fields):
        line = json.dumps({**self.head(), "kind": kind, **fields}) + "\n"
        with Path(self.output["events"]).open("a") as handle:
            handle.write(line)
            if self.fault.get("twice"):
                handle.write(line)
        self.seq += 1

    def head(self):
        time = datetime.now(UTC).isoformat()
        names = {name: self.request[name] for name in ("session", "attempt")}
        return {"v": 1, **names, "seq": self.seq, "time": time}

    def fail(self, code, reason, step, detail=""):
        self.event("error", exit_code=code, reason=reason, rank=RANK, step=step, detail=detail)
        sys.exit(code)

    def train(self):
        first, resume = 0, self.request["resume"]
        if resume:
            manifest = Path(resume["uri"], "manifest.json").read_bytes()
            assert hashlib.sha256(manifest).hexdigest() == resume["digest"]
            first = json.loads(manifest)["step"]
            self.event("progress", step=first, steps=self.steps, message=f"resumed at {first}")
        for step in range(first + 1, self.steps + 1):
            time.sleep(self.pause)
            self.event("metrics", step=step, metrics={"train_loss": 1 / step})
            self.checkpoint(step)
            if self.told:
                self.fail(75, f"a stop notice came: saved at step {step}", step)
            self.misbehave(step)
        self.result(
            step=self.steps,
            best_step=self.steps,
            stopped="epochs",
            model=self.model(),
            metrics={"validation_loss": 0.5},
            seconds=0.1,
            advice=[],
        )
        self.misbehave("end")

    def score(self):
        self.misbehave(1)
        predictions = Path(self.output["predictions"])
        predictions.write_bytes(b"0.5")
        file = described(predictions.parent, predictions.name)
        file["path"] = str(predictions)
        self.result(predictions=file, rows=1, latency_ms=0.1, rows_per_second=10.0)

    def misbehave(self, step):
        if self.fault.get("at") != step or self.fault.get("rank", RANK) != RANK:
            return
        if "log" in self.fault:
            print("\n".join(f"log line {n}" for n in range(100)), flush=True)
        if "half_line" in self.fault:
            with Path(self.output["events"]).open("a") as handle:
                handle.write('{"v": 1, "session": "')
        if "environment" in self.fault:
            Path(self.fault["environment"]).write_text(json.dumps(dict(os.environ)))
        if "grandchild" in self.fault:
            sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
            child = subprocess.Popen(sleeper, start_new_session=True)
            Path(self.fault["grandchild"]).write_text(json.dumps([os.getpid(), child.pid]))
        if "signal" in self.fault:
            os.kill(os.getpid(), self.fault["signal"])
        if "exit" in self.fault:
            if "reason" not in self.fault:
                sys.exit(self.fault["exit"])
            self.fail(self.fault["exit"], self.fault["reason"], step, self.fault.get("detail", ""))
        while "until" in self.fault and not Path(self.fault["until"]).exists():
            time.sleep(0.02)
        while self.fault.get("hang") and not (self.told and step != "end"):
            time.sleep(0.02)
        if self.told:
            self.fail(75, f"a stop notice came: saved at step {step}", step)

    def checkpoint(self, step):
        name = f"step-{step:06d}.a{self.request['attempt']}"
        folder = Path(self.output["checkpoints"], name)
        folder.mkdir(parents=True)
        (folder / "state.bin").write_bytes(b"s" * step)
        manifest = {
            "session": self.request["session"],
            "attempt": self.request["attempt"],
            "step": step,
            "validation_loss": None,
            "world": self.request["world"]["procs"],
            "parent": None,
            "files": [described(folder, "state.bin")],
        }
        ref = manifested(folder, "manifest.json", manifest)
        self.event("checkpoint", step=step, checkpoint=ref, size=step, best=True, metrics={})

    def model(self):
        folder = Path(self.output["model"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.safetensors").write_bytes(b"weights")
        manifest = {
            "model": self.request["model"],
            "task": "binary",
            "classes": [],
            "preprocessing": {"numeric": [], "null_flags": [], "categorical": []},
            "weights": described(folder, "weights.safetensors"),
            "step": self.steps,
        }
        return manifested(folder, "model.json", manifest)

    def result(self, **fields):
        names = {name: self.request[name] for name in ("verb", "session", "attempt")}
        result = {**names, "outcome": "done", **fields}
        draft = Path(self.output["result"] + ".draft")
        draft.write_text(json.dumps(result))
        draft.replace(self.output["result"])
        self.event("result", result=result)


def described(folder, name):
    data = (folder / name).read_bytes()
    return {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def manifested(folder, name, manifest):
    data = json.dumps(manifest).encode()
    (folder / name).write_bytes(data)
    return {"uri": str(folder), "digest": hashlib.sha256(data).hexdigest()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("verb", choices=["train", "score"])
    parser.add_argument("--request", type=Path)
    arguments = parser.parse_args()
    program = Program(
        json.loads(arguments.plan.read_text()), json.loads(arguments.request.read_text())
    )
    getattr(program, arguments.verb)()


if __name__ == "__main__":
    main()
