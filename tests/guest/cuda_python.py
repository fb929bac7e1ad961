"""cuda.bindings, NVIDIA's Python bindings, by `tessera emulate -- python3`: driver, runtime and NVRTC in one program."""

import sys

import numpy as np
from cuda.bindings import driver, nvrtc, runtime

SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def checked(result):
    error, *rest = result
    assert int(error) == 0, error
    return rest[0] if len(rest) == 1 else rest


def compiled(target):
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
    options = [b"--gpu-architecture=" + target]
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    is_ptx = target.startswith(b"compute")
    size = checked((nvrtc.nvrtcGetPTXSize if is_ptx else nvrtc.nvrtcGetCUBINSize)(program))
    code = b" " * size
    checked((nvrtc.nvrtcGetPTX if is_ptx else nvrtc.nvrtcGetCUBIN)(program, code))
    return code


def launched(function, stream, x, y, count):
    values = [np.array([value], dtype) for value, dtype in ((2.5, "f4"), (int(x), "u8"), (int(y), "u8"), (count, "i4"))]
    arguments = np.array([value.ctypes.data for value in values], "u8")
    return driver.cuLaunchKernel(function, -(-count // 128), 1, 1, 128, 1, 1, 0, int(stream), arguments.ctypes.data, 0)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
properties = checked(runtime.cudaGetDeviceProperties(0))
print(properties.name.decode(), properties.multiProcessorCount)
target = b"%d%d" % (properties.major, properties.minor)
stream = checked(runtime.cudaStreamCreate())
begin, end = checked(runtime.cudaEventCreate()), checked(runtime.cudaEventCreate())
count, kind = 1000, runtime.cudaMemcpyKind
for code in (compiled(b"compute_" + target), compiled(b"sm_" + target)):
    function = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(code)), b"saxpy"))
    x, y = (np.random.rand(count).astype("f4") for _ in range(2))
    on_device = checked(driver.cuMemAlloc(4 * count)), checked(runtime.cudaMalloc(4 * count))
    checked(driver.cuMemcpyHtoD(on_device[0], x.ctypes.data, 4 * count))
    checked(runtime.cudaMemcpyAsync(on_device[1], y.ctypes.data, 4 * count, kind.cudaMemcpyHostToDevice, stream))
    checked(runtime.cudaEventRecord(begin, stream))
    checked(launched(function, stream, *on_device, count))
    checked(runtime.cudaEventRecord(end, stream))
    made = np.full(count, np.nan, "f4")
    checked(runtime.cudaMemcpyAsync(made.ctypes.data, on_device[1], 4 * count, kind.cudaMemcpyDeviceToHost, stream))
    checked(runtime.cudaStreamSynchronize(stream))
    assert checked(runtime.cudaEventElapsedTime(begin, end)) >= 0
    assert np.allclose(made, 2.5 * x.astype("f8") + y, rtol=1e-6)
if "faulty" in sys.argv:
    launched(function, stream, *on_device, count + 1)
    assert runtime.cudaStreamSynchronize(stream)[0] == runtime.cudaError_t.cudaErrorIllegalAddress
print("all right")
