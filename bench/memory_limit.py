"""A control group with a memory limit, for the processes that a measurement starts."""

import os
import pathlib


class MemoryLimit:
    """A fresh group (v1 or v2), page cache counted; enter() is for subprocess's preexec_fn."""

    made = 0

    def __init__(self, size):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        root = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
        MemoryLimit.made += 1
        self.folder = root / f"millrace-bench-{os.getpid()}-{MemoryLimit.made}"
        self.folder.mkdir()
        name = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        (self.folder / name).write_text(str(size))

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.rmdir()
