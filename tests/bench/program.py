"""A program of bench/h200 whose cases are run by a stand-in for Python that writes down what it is asked for."""
import contextlib
import pathlib
import subprocess
import tempfile


class Program:
    def __init__(self, path, folder):
        self.folder = pathlib.Path(folder)
        library, runner = self.folder / "library.so", self.folder / "runner"
        library.write_text("one")
        runner.write_text(f'#!/bin/sh\necho "$@" >> {self.folder / "calls"}\n')
        runner.chmod(0o755)
        self.command = [path, "--library", library, "--out", self.folder / "results", "--python", runner]

    def run(self, *words):
        """What it prints on both, and its exit code."""
        done = subprocess.run([*self.command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout, done.returncode

    def calls(self):
        """What the stand-in was asked for, programs given as text left out."""
        path = self.folder / "calls"
        return [line for line in path.read_text().splitlines() if not line.startswith("-c")] if path.exists() else []


@contextlib.contextmanager
def program(path):
    with tempfile.TemporaryDirectory() as folder:
        yield Program(path, folder)
