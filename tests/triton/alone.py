"""tessera_triton.use() in a process of its own: results, exceptions that can be caught, the exit code of the program."""

import tessera_triton

tessera_triton.use(gpu="RTX5090", races=True)

import torch  # noqa: E402
import triton  # noqa: E402
from faults import add, race  # noqa: E402

x, y, o = torch.rand(1000, device="cuda"), torch.rand(1000), torch.full((1000,), float("nan"))
add[(4,)](x, y, o, 1000, BLOCK=256, MASKED=True)
assert torch.equal(o, x + y) and x.device.type == "cpu"
assert tessera_triton.findings() == []
before = o.clone()
try:
    add[(4,)](x, y[:900].clone(), o, 1000, BLOCK=256, MASKED=True)
    raise SystemExit("no exception")
except tessera_triton.EmulatorError as error:
    assert error.findings[0]["name"] == "global-out-of-bounds" and "faults.py:13" in str(error), error
assert torch.equal(o, before)
o.fill_(float("nan"))
add[(4,)](x, y, o, 1000, BLOCK=256, MASKED=True)  # the device takes launches again
assert torch.equal(o, x + y)
race()
assert "global-race" in {finding["name"] for finding in tessera_triton.findings()}
assert triton.testing.do_bench(lambda: add[(4,)](x, y, o, 1000, BLOCK=256, MASKED=True), warmup=1, rep=1) > 0
try:
    tessera_triton.use(gpu="B200")
    raise SystemExit("a second GPU")
except RuntimeError:
    pass
