// Where managed memory should be: advice and prefetches are kept and told again, and change nothing, as all memory is
// in one place. Of memory that belongs to the device alone they are refused, as a GPU does.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "guest/capture.h"
#include "guest/loaded.h"
#include "guest/memory.h"
#include "guest/pool.h"
#include "guest/work.h"

namespace tessera::guest {
namespace {

enum class Kind : std::uint8_t { read_mostly, preferred, accessed_by, prefetched };

/// What was said last about a piece of memory holds.
struct Hint {
  std::uint64_t begin = 0, end = 0;
  Kind kind = Kind::read_mostly;
  bool is_set = false;
  cudaMemLocation location{};

  bool is_like(const Hint& other) const {
    return kind == other.kind &&
           (kind != Kind::accessed_by || (location.type == other.location.type && location.id == other.location.id));
  }
};

std::vector<Hint>& hints() {
  static auto* const made = new std::vector<Hint>;
  return *made;
}

void note(const Hint& hint) {
  std::erase_if(hints(),
                [&](const Hint& old) { return old.is_like(hint) && old.begin >= hint.begin && old.end <= hint.end; });
  hints().push_back(hint);
}

bool is_named(const cudaMemLocation& location) {
  switch (location.type) {
    case cudaMemLocationTypeDevice:
      return location.id == 0 || location.id == cudaCpuDeviceId;
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNuma:
    case cudaMemLocationTypeHostNumaCurrent:
      return true;
    default:
      return false;
  }
}
bool can_move(const void* pointer, std::size_t bytes) {
  const Block* const block = Blocks::instance().find(pointer);
  if (bytes == 0) return false;
  return block == nullptr ||
         (block->kind != BlockKind::device && address_of(pointer) + bytes <= block->address + block->bytes);
}

cudaError_t advise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, const cudaMemLocation& location) {
  if (!can_move(pointer, bytes) || advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
    return cudaErrorInvalidValue;
  const Kind kind = static_cast<Kind>((advice - 1) / 2);
  const bool is_set = advice % 2 == 1;
  if (kind == Kind::accessed_by || (kind == Kind::preferred && is_set))
    if (!is_named(location)) return cudaErrorInvalidDevice;
  note({address_of(pointer), address_of(pointer) + bytes, kind, is_set, location});
  return cudaSuccess;
}
cudaError_t prefetch(const void* pointer, std::size_t bytes, const cudaMemLocation& location, const void* stream) {
  if (const cudaError_t error = awaitable(stream); error != cudaSuccess) return error;  // no graph has such a node
  if (!can_move(pointer, bytes)) return cudaErrorInvalidValue;
  if (!is_named(location)) return cudaErrorInvalidDevice;
  note({address_of(pointer), address_of(pointer) + bytes, Kind::prefetched, true, location});
  return cudaSuccess;
}

/// The place where all of the range should be; false: there is no such place, or several.
bool common(Kind kind, std::uint64_t begin, std::uint64_t end, const cudaMemLocation* of, cudaMemLocation& found) {
  std::vector<std::uint64_t> edges{begin};
  for (const Hint& hint : hints())
    for (const std::uint64_t edge : {hint.begin, hint.end})
      if (edge > begin && edge < end) edges.push_back(edge);
  bool is_first = true;
  for (const std::uint64_t edge : edges) {
    const auto last = std::find_if(hints().rbegin(), hints().rend(), [&](const Hint& hint) {
      return hint.kind == kind && hint.begin <= edge && edge < hint.end &&
             (of == nullptr || (hint.location.type == of->type && hint.location.id == of->id));
    });
    if (last == hints().rend() || !last->is_set) return false;
    const bool differs = last->location.type != found.type || last->location.id != found.id;
    if (!is_first && kind != Kind::read_mostly && differs) return false;
    found = last->location;
    is_first = false;
  }
  return true;
}

int number_of(const cudaMemLocation& location) {
  return location.type == cudaMemLocationTypeDevice ? location.id : cudaCpuDeviceId;
}
cudaMemLocation device_place(int device) {
  cudaMemLocation location{};
  location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device == cudaCpuDeviceId ? 0 : device;
  return location;
}

cudaError_t attribute_of(void* data, std::size_t bytes, cudaMemRangeAttribute attribute, const void* pointer,
                         std::size_t count) {
  const Block* const block = Blocks::instance().find(pointer);
  if (data == nullptr || count == 0 || (block != nullptr && block->kind == BlockKind::device))
    return cudaErrorInvalidValue;
  const std::uint64_t begin = address_of(pointer), end = begin + count;
  cudaMemLocation found{};
  if (attribute == cudaMemRangeAttributeAccessedBy) {  // those of the devices first, then none
    std::vector<int> list(bytes / sizeof(int), cudaInvalidDeviceId);
    std::size_t used = 0;
    for (const int device : {0, cudaCpuDeviceId}) {
      const cudaMemLocation place = device_place(device);
      if (used < list.size() && common(Kind::accessed_by, begin, end, &place, found)) list[used++] = device;
    }
    std::memcpy(data, list.data(), list.size() * sizeof(int));
    return list.empty() ? cudaErrorInvalidValue : cudaSuccess;
  }
  if (bytes != sizeof(int)) return cudaErrorInvalidValue;
  int value = 0;
  const bool is_prefetch = attribute == cudaMemRangeAttributeLastPrefetchLocation ||
                           attribute == cudaMemRangeAttributeLastPrefetchLocationType ||
                           attribute == cudaMemRangeAttributeLastPrefetchLocationId;
  const bool is_one = common(attribute == cudaMemRangeAttributeReadMostly ? Kind::read_mostly
                             : is_prefetch                                ? Kind::prefetched
                                                                          : Kind::preferred,
                             begin, end, nullptr, found);
  switch (attribute) {
    case cudaMemRangeAttributeReadMostly:
      value = is_one ? 1 : 0;
      break;
    case cudaMemRangeAttributePreferredLocation:
    case cudaMemRangeAttributeLastPrefetchLocation:
      value = is_one ? number_of(found) : cudaInvalidDeviceId;
      break;
    case cudaMemRangeAttributePreferredLocationType:
    case cudaMemRangeAttributeLastPrefetchLocationType:
      value = is_one ? static_cast<int>(found.type) : static_cast<int>(cudaMemLocationTypeInvalid);
      break;
    case cudaMemRangeAttributePreferredLocationId:
    case cudaMemRangeAttributeLastPrefetchLocationId:
      value = is_one ? found.id : 0;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  std::memcpy(data, &value, sizeof(value));
  return cudaSuccess;
}

CUresult answer(cudaError_t error) { return static_cast<CUresult>(error); }
cudaMemLocation place_of(const CUmemLocation& location) {
  cudaMemLocation same{};
  same.type = static_cast<cudaMemLocationType>(location.type);
  same.id = location.id;
  return same;
}

}  // namespace

void forget_hints(const void* pointer, std::size_t bytes) {
  std::erase_if(hints(), [&](const Hint& hint) {
    return hint.begin >= address_of(pointer) && hint.end <= address_of(pointer) + bytes;
  });
}

}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

cudaError_t cudaMemPrefetchAsync_v2(const void* pointer, std::size_t bytes, cudaMemLocation location, unsigned flags,
                                    cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    return flags != 0 ? cudaErrorInvalidValue : prefetch(pointer, bytes, location, stream);
  });
}
cudaError_t cudaMemAdvise_v2(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice,
                             cudaMemLocation location) {
  return called(__func__, [&] { return advise(pointer, bytes, advice, location); });
}
// A program of CUDA 12 passes a device's number in the place of the location, and its stream before that of CUDA 13.
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
  const bool is_old = is_program_of_cuda_12();
  if (is_old) location = device_place(static_cast<int>(location.type));
  return cudaMemPrefetchAsync_v2(pointer, bytes, location, is_old ? 0 : flags, is_old ? nullptr : stream);
}
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  if (is_program_of_cuda_12()) location = device_place(static_cast<int>(location.type));
  return cudaMemAdvise_v2(pointer, bytes, advice, location);
}
cudaError_t cudaMemRangeGetAttribute(void* data, std::size_t bytes, cudaMemRangeAttribute attribute,
                                     const void* pointer, std::size_t count) {
  return called(__func__, [&] { return attribute_of(data, bytes, attribute, pointer, count); });
}
cudaError_t cudaMemRangeGetAttributes(void** data, std::size_t* bytes, cudaMemRangeAttribute* attributes,
                                      std::size_t num, const void* pointer, std::size_t count) {
  return called(__func__, [&]() -> cudaError_t {
    for (std::size_t i = 0; i < num; ++i)
      if (const cudaError_t error = attribute_of(data[i], bytes[i], attributes[i], pointer, count);
          error != cudaSuccess)
        return error;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void*, std::size_t, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    const bool is_known = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    return is_known ? awaitable(stream) : cudaErrorInvalidValue;
  });
}

// The driver's: kinds of advice and attributes have the same numbers.
#undef cuMemAdvise
#undef cuMemPrefetchAsync
CUresult cuMemAdvise(CUdeviceptr pointer, std::size_t bytes, CUmem_advise advice, CUdevice device) {
  return answer(
      cudaMemAdvise_v2(pointer_of(pointer), bytes, static_cast<cudaMemoryAdvise>(advice), device_place(device)));
}
CUresult cuMemAdvise_v2(CUdeviceptr pointer, std::size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return answer(
      cudaMemAdvise_v2(pointer_of(pointer), bytes, static_cast<cudaMemoryAdvise>(advice), place_of(location)));
}
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, std::size_t bytes, CUdevice device, CUstream stream) {
  return answer(cudaMemPrefetchAsync_v2(pointer_of(pointer), bytes, device_place(device), 0, stream));
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, std::size_t bytes, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  return answer(cudaMemPrefetchAsync_v2(pointer_of(pointer), bytes, place_of(location), flags, stream));
}
CUresult cuMemRangeGetAttribute(void* data, std::size_t bytes, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                std::size_t count) {
  return answer(
      cudaMemRangeGetAttribute(data, bytes, static_cast<cudaMemRangeAttribute>(attribute), pointer_of(pointer), count));
}
CUresult cuMemRangeGetAttributes(void** data, std::size_t* bytes, CUmem_range_attribute* attributes, std::size_t num,
                                 CUdeviceptr pointer, std::size_t count) {
  return answer(cudaMemRangeGetAttributes(data, bytes, reinterpret_cast<cudaMemRangeAttribute*>(attributes), num,
                                          pointer_of(pointer), count));
}
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, std::size_t bytes, unsigned flags) {
  return answer(cudaStreamAttachMemAsync(stream, pointer_of(pointer), bytes, flags));
}

}  // extern "C"
