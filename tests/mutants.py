"""Break one rule of the engine at a time: the table of promises must notice each.

    python tests/mutants.py [NAME ...]

Works on a copy of the sources. A mutant that survives is a promise that no test holds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ("test_promises", "test_properties", "test_bad_input", "test_adapter")


class Mutant(NamedTuple):
    """One rule broken: a text in a file below src/driftnorm, and what stands there instead."""

    file: str
    was: str
    now: str


MUTANTS = {
    "moments changed in place": Mutant(
        "parts/statistics.py",
        '"mean": torch.lerp(memory["mean"], new.mean, weight),',
        '"mean": memory["mean"].lerp_(new.mean, weight),',
    ),
    "optimiser state changed in place": Mutant(
        "parts/updates.py", "return value.to(parameter, copy=True)", "return value.to(parameter)"
    ),
    "values left in the network": Mutant(
        "adapter/_network.py", "                places[key] = parameter\n", "                pass\n"
    ),
    "draws from the global generator": Mutant(
        "parts/updates.py", "torch.rand(value.shape, generator=draw)", "torch.rand(value.shape)"
    ),
    "draws ignore the batch": Mutant(
        "adapter/_step.py", "self._draft.batches, self.index", "0, self.index"
    ),
    "draws ignore the saved seed": Mutant(
        "adapter/_engine.py", 'int(about["seed"])', "self._draws"
    ),
    "numbers saved as tensors": Mutant(
        "adapter/_tree.py", "return _KINDS[kind](tensor.item())", "return tensor"
    ),
    "empty containers vanish": Mutant(
        "adapter/_tree.py",
        'return {f"{name}{_EMPTY}": torch.zeros(0)} if name else {}',
        "return {}",
    ),
    "fitted not saved": Mutant(
        "adapter/_engine.py", '"fitted": self._fitted, "counts"', '"fitted": {}, "counts"'
    ),
    "commit before the review": Mutant(
        "adapter/_engine.py",
        "        signals = read_signals(forward.logits)\n",
        "        self._tree = draft.tree()\n        signals = read_signals(forward.logits)\n",
    ),
    "commit before the answer": Mutant(
        "adapter/_engine.py",
        "        forward = step.forward\n",
        "        forward = step.forward\n        self._tree = draft.tree()\n",
    ),
    "frozen writes are kept": Mutant(
        "adapter/_engine.py",
        "        return answer_of(self.recipe, step)\n",
        "        answer = answer_of(self.recipe, step)\n"
        "        self._tree = {**step._draft.tree(), 'batches': self.batches + 1}\n"
        "        return answer\n",
    ),
    "no check of the input": Mutant(
        "adapter/_engine.py",
        "if call.x.is_floating_point() and not is_finite([call.x]):",
        "if False:",
    ),
    "no check of the statistics": Mutant(
        "adapter/_batch.py",
        'if not is_finite(new_tensors(draft.layers, begun.get("layers", {}))):',
        "if False:",
    ),
    "state not judged": Mutant(
        "adapter/_saved_state.py", '            check_entry(f"{PREFIX}{name}/{key}", value)\n', ""
    ),
    "the stage is not cleared": Mutant(
        "adapter/_network.py",
        "            self.stage.now, self.probing = before, was_probing\n",
        "            self.probing = was_probing\n",
    ),
    "parts do not move": Mutant(
        "adapter/_engine.py",
        "        self._tree = tree\n        self._fitted",
        "        self._fitted",
    ),
    "the batch itself is passed": Mutant("adapter/_network.py", "x = self.x.clone()", "x = self.x"),
}


def survives(mutant: Mutant) -> bool:
    """Whether every test passes on a copy with this rule broken."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "src"
        shutil.copytree(ROOT / "src", source)
        file = source / "driftnorm" / mutant.file
        text = file.read_text()
        if text.count(mutant.was) != 1:
            sys.exit(f"{mutant.file} holds {mutant.was!r} {text.count(mutant.was)} times, not once")
        file.write_text(text.replace(mutant.was, mutant.now))
        tests = [str(ROOT / "tests" / "adapter" / f"{name}.py") for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", *tests]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        return (
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode == 0
        )


def main() -> None:
    """Every mutant, or those that are named."""
    names = sys.argv[1:] or [*MUTANTS]
    alive = []
    for name in names:
        alive += [name] if survives(MUTANTS[name]) else []
        print(f"{name}: {'SURVIVES' if name in alive else 'noticed'}", flush=True)
    sys.exit(f"{len(alive)} of {len(names)} mutants survive" if alive else 0)


if __name__ == "__main__":
    main()
