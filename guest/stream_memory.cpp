// Words of memory that a stream writes and waits for (cuStreamWriteValue32 and its like), and many copies in one call.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "guest/array.h"
#include "guest/capture.h"
#include "guest/driver.h"
#include "guest/graph.h"
#include "guest/loaded.h"
#include "guest/runtime_copy.h"

using namespace tessera::guest;

namespace {

using Operation = CUstreamBatchMemOpParams;

std::uint64_t word_at(CUdeviceptr address, std::size_t bytes) {
  std::uint64_t word = 0;
  Session::instance().device().copy_to_host(&word, address, bytes);
  return word;
}

bool is_met(std::uint64_t word, std::uint64_t value, unsigned flags, bool is_wide) {
  switch (flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH)) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return is_wide ? ~(word | value) != 0 : static_cast<std::uint32_t>(~(word | value)) != 0;
    default:  // a difference of their width, with a sign
      return is_wide ? static_cast<std::int64_t>(word - value) >= 0
                     : static_cast<std::int32_t>(static_cast<std::uint32_t>(word - value)) >= 0;
  }
}

cudaError_t run(const Operation& of) {
  switch (of.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      Session::instance().device().copy_to_device(of.writeValue.address, &of.writeValue.value, 4);
      return cudaSuccess;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      Session::instance().device().copy_to_device(of.writeValue.address, &of.writeValue.value64, 8);
      return cudaSuccess;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return is_met(word_at(of.waitValue.address, 4), of.waitValue.value, of.waitValue.flags, false)
                 ? cudaSuccess
                 : cudaErrorNotReady;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return is_met(word_at(of.waitValue.address, 8), of.waitValue.value64, of.waitValue.flags, true)
                 ? cudaSuccess
                 : cudaErrorNotReady;
    default:  // barriers and flushes: everything before is done
      return cudaSuccess;
  }
}

// Of words that the device can reach, at their own alignment.
cudaError_t check(const Operation& of) {
  const bool is_wide =
      of.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 || of.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const bool is_word =
      is_wide || of.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || of.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
  if (!is_word) {
    const bool is_known =
        of.operation == CU_STREAM_MEM_OP_BARRIER || of.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    return is_known ? cudaSuccess : cudaErrorInvalidValue;
  }
  const bool is_wait = of.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || of.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const unsigned known = is_wait ? CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH
                                 : static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
  if ((of.waitValue.flags & ~known) != 0) return cudaErrorInvalidValue;  // both kinds have it at one place
  if (of.waitValue.address % (is_wide ? 8 : 4) != 0) return cudaErrorInvalidValue;
  const bool is_there = Session::instance().device().is_allocated(of.waitValue.address, is_wide ? 8 : 4);
  return is_there ? cudaSuccess : cudaErrorInvalidValue;
}

// Each launch of a graph has a copy, so what is done once is not done again.
Work work_of(std::vector<Operation> operations) {
  LibraryWork work;
  work.is_memory_operation = true;
  work.run = [operations = std::move(operations), next = std::size_t{0}]() mutable {
    for (; next < operations.size(); ++next)
      if (const cudaError_t error = run(operations[next]); error != cudaSuccess) return error;
    return cudaSuccess;
  };
  return work;
}

CUresult ask(const char* function, CUstream stream, std::vector<Operation> operations) {
  return drive(function, [&]() -> cudaError_t {
    for (const Operation& of : operations)
      if (const cudaError_t error = check(of); error != cudaSuccess) return error;
    return submit(stream, work_of(std::move(operations)));
  });
}

Operation write_of(CUstreamBatchMemOpType kind, CUdeviceptr address, std::uint64_t value, unsigned flags) {
  Operation of{};
  of.writeValue.operation = kind;
  of.writeValue.address = address;
  of.writeValue.value64 = value;
  of.writeValue.flags = flags;
  return of;
}
Operation wait_of(CUstreamBatchMemOpType kind, CUdeviceptr address, std::uint64_t value, unsigned flags) {
  Operation of{};
  of.waitValue.operation = kind;
  of.waitValue.address = address;
  of.waitValue.value64 = value;
  of.waitValue.flags = flags;
  return of;
}

// Many copies: their attributes are hints.
cudaError_t copy_all(const char* function, void* const* to, const void* const* from, const std::size_t* bytes,
                     std::size_t count, const std::size_t* firsts, std::size_t kinds, const void* attributes,
                     cudaStream_t stream) {
  return called(function, [&]() -> cudaError_t {
    if (to == nullptr || from == nullptr || bytes == nullptr || count == 0 || kinds == 0 || kinds > count ||
        attributes == nullptr || firsts == nullptr || firsts[0] != 0)
      return cudaErrorInvalidValue;
    for (std::size_t i = 1; i < kinds; ++i)
      if (firsts[i] <= firsts[i - 1] || firsts[i] >= count) return cudaErrorInvalidValue;
    StreamState* state = nullptr;
    if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
    if (state->is_legacy) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (to[i] == nullptr || from[i] == nullptr || bytes[i] == 0) return cudaErrorInvalidValue;
      Box box;
      box.to = to[i];
      box.from = from[i];
      box.width = bytes[i];
      if (const cudaError_t error = submit(stream, box); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 13000
// An operand's bytes: rows of memory, or a place in an array.
void put(const cudaMemcpy3DOperand& given, cudaPitchedPtr& pointer, cudaArray_t& array, cudaPos& place) {
  if (given.type == cudaMemcpyOperandTypePointer) {
    pointer.ptr = given.op.ptr.ptr;
    pointer.pitch = given.op.ptr.rowLength;
    pointer.xsize = given.op.ptr.rowLength;
    pointer.ysize = given.op.ptr.layerHeight;
    return;
  }
  array = given.op.array.array;
  place = {given.op.array.offset.x, given.op.array.offset.y, given.op.array.offset.z};
}

std::size_t bytes_of(cudaArray_t array) {
  cudaChannelFormatDesc format{};
  cudaArrayGetInfo(&format, nullptr, nullptr, array);
  return static_cast<std::size_t>(format.x + format.y + format.z + format.w) / 8;
}

// Lengths of rows are counted in elements where an array is one side, else in bytes.
cudaError_t copy_box(const cudaMemcpy3DBatchOp& given, cudaStream_t stream) {
  cudaMemcpy3DParms copy{};
  put(given.src, copy.srcPtr, copy.srcArray, copy.srcPos);
  put(given.dst, copy.dstPtr, copy.dstArray, copy.dstPos);
  const std::size_t element = copy.srcArray != nullptr   ? bytes_of(copy.srcArray)
                              : copy.dstArray != nullptr ? bytes_of(copy.dstArray)
                                                         : 1;
  for (cudaPitchedPtr* const side : {&copy.srcPtr, &copy.dstPtr}) {
    if (side->ptr == nullptr) continue;
    side->pitch = (side->pitch == 0 ? given.extent.width : side->pitch) * element;
    side->xsize = side->pitch;
    if (side->ysize == 0) side->ysize = given.extent.height;
  }
  copy.extent = given.extent;
  copy.kind = cudaMemcpyDefault;
  return cudaMemcpy3DAsync(&copy, stream);
}
#endif

}  // namespace

#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamBatchMemOp

extern "C" {

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return ask(__func__, stream, {write_of(CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags)});
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return ask(__func__, stream, {write_of(CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags)});
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return ask(__func__, stream, {wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags)});
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return ask(__func__, stream, {wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags)});
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, Operation* operations, unsigned flags) {
  if (operations == nullptr || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return ask(__func__, stream, std::vector<Operation>(operations, operations + count));
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return cuStreamWriteValue64_v2(stream, address, value, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, Operation* operations, unsigned flags) {
  return cuStreamBatchMemOp_v2(stream, count, operations, flags);
}
CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
  return drive("cuGraphAddBatchMemOpNode", [&] {
    const auto make = [&](Work& made) -> cudaError_t {
      for (unsigned i = 0; i < given->count; ++i)
        if (const cudaError_t error = check(given->paramArray[i]); error != cudaSuccess) return error;
      made = work_of(std::vector<Operation>(given->paramArray, given->paramArray + given->count));
      return cudaSuccess;
    };
    return add_node(node, graph, after, count, make);
  });
}

cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* firsts, std::size_t kinds,
                                 cudaStream_t stream) {
  // CUDA 12.8 has a place for the number of what failed before the stream: such a program's copies run here and now.
  if (is_program_of_cuda_12()) stream = cudaStreamPerThread;
  return copy_all(__func__, to, from, bytes, count, firsts, kinds, attributes, stream);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                               CUmemcpyAttributes* attributes, std::size_t* firsts, std::size_t kinds,
                               CUstream stream) {
  return static_cast<CUresult>(copy_all(__func__, reinterpret_cast<void* const*>(to),
                                        reinterpret_cast<const void* const*>(from), bytes, count, firsts, kinds,
                                        attributes, stream));
}
// CUDA 12.8's form.
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                            CUmemcpyAttributes* attributes, std::size_t* firsts, std::size_t kinds, std::size_t* failed,
                            CUstream stream) {
  const CUresult error = cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, firsts, kinds, stream);
  if (failed != nullptr) *failed = error == CUDA_SUCCESS ? 0 : ~std::size_t{0};  // it is not told which
  return error;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpy3DBatchAsync(std::size_t count, cudaMemcpy3DBatchOp* list, unsigned long long flags,
                                   cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState* state = nullptr;
    if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
    if (count == 0 || list == nullptr || flags != 0 || state->is_legacy) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (const cudaError_t error = copy_box(list[i], stream); error != cudaSuccess) return error;
    return cudaSuccess;
  });
}
CUresult cuMemcpy3DBatchAsync_v2(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags,
                                 CUstream stream) {
  static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == sizeof(cudaMemcpy3DBatchOp));  // the same fields
  return static_cast<CUresult>(
      cudaMemcpy3DBatchAsync(count, reinterpret_cast<cudaMemcpy3DBatchOp*>(list), flags, stream));
}
cudaError_t cudaMemPrefetchBatchAsync(void** pointers, std::size_t* bytes, std::size_t count, cudaMemLocation* places,
                                      std::size_t* firsts, std::size_t kinds, unsigned long long flags,
                                      cudaStream_t stream) {
  if (pointers == nullptr || bytes == nullptr || places == nullptr || firsts == nullptr || kinds == 0 || flags != 0)
    return told(cudaErrorInvalidValue);
  for (std::size_t i = 0, kind = 0; i < count; ++i) {
    while (kind + 1 < kinds && firsts[kind + 1] <= i) ++kind;
    if (const cudaError_t error = cudaMemPrefetchAsync(pointers[i], bytes[i], places[kind], 0, stream);
        error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}
// What is discarded may hold anything: it is left as it is.
cudaError_t cudaMemDiscardBatchAsync(void** pointers, std::size_t* bytes, std::size_t count, unsigned long long flags,
                                     cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    if (pointers == nullptr || bytes == nullptr || count == 0 || flags != 0) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      const Block* const block = Blocks::instance().find(pointers[i]);
      if (block == nullptr || block->kind != BlockKind::managed) return cudaErrorInvalidValue;
    }
    return awaitable(stream);
  });
}
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void** pointers, std::size_t* bytes, std::size_t count,
                                                cudaMemLocation* places, std::size_t* firsts, std::size_t kinds,
                                                unsigned long long flags, cudaStream_t stream) {
  const cudaError_t error = cudaMemDiscardBatchAsync(pointers, bytes, count, flags, stream);
  return error != cudaSuccess ? error
                              : cudaMemPrefetchBatchAsync(pointers, bytes, count, places, firsts, kinds, flags, stream);
}
#endif

}  // extern "C"
