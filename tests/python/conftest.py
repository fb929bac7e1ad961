"""A cache of its own for the tests, and inputs that are new each time."""

import os
import tempfile

import numpy
import pytest

_folder = tempfile.TemporaryDirectory(prefix="tessera-python-")
os.environ["TESSERA_CACHE_DIR"] = _folder.name
for variable in ("TESSERA_COMPILE_POLICY", "TESSERA_SYSTEM_CACHE_DIRS", "TESSERA_REQUIRE_COMPILER"):
    os.environ.pop(variable, None)


@pytest.fixture
def random():
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)  # shown where a test fails
    return numpy.random.default_rng(seed)
