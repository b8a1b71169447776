"""How pytest-xdist hands out files of tests: slow ones first, and each to the worker that is free.

pytest-xdist begins with the files that have the most tests. But a test that starts processes or generates its inputs
takes as long as a hundred others, so such a file at the end would keep one worker busy while the others have nothing
left.

A test that ends its worker is one failure, and all others still run. faulthandler ends a worker whose test hangs. With
pytest-xdist 3.8 the next worker gets that test again, until none is left (pytest-dev/pytest-xdist#1371), and may wait
for ever: for a test after its last one (#1327), or because it got a file without tests left (#1378; all read in
November 2026).
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SLOW = ("pytest.mark.process", "pytest.mark.fuzz", "@given(")


@cache
def is_slow(file: Path) -> bool:
    return file.is_file() and any(mark in file.read_text("utf-8") for mark in SLOW)


class FileScheduling(LoadFileScheduling):
    def schedule(self) -> None:
        super().schedule()
        for worker in self.nodes:
            self._reschedule(worker)  # if nothing is left, this ends a worker after its last test

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the slow file with the most tests, and then of the others the one with the most."""
        root = self.config.rootpath
        first = max(self.workqueue, key=lambda file: (is_slow(root / file), len(self.workqueue[file])))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that ended this worker, None if it had none left. Its other tests go to other workers."""
        files = {
            file: tests for file, tests in self.assigned_work.pop(node).items() if not all(tests.values())
        }
        for tests in files.values():
            crashed = next(test for test, done in tests.items() if not done)
            tests[crashed] = True
            self.workqueue.update({file: rest for file, rest in files.items() if not all(rest.values())})
            for worker in self.assigned_work.keys() & self.registered_collections.keys():
                self._reschedule(worker)
            return crashed
        return None
