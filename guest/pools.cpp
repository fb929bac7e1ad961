// Pools of memory, of both APIs: their attributes have the same numbers. A pool counts what is used of it, keeps up to
// its threshold of what is freed, as if every free were followed by a wait, and refuses what is beyond its largest
// size.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "guest/capture.h"
#include "guest/driver.h"
#include "guest/memory.h"
#include "guest/pool.h"
#include "guest/work.h"

namespace tessera::guest {
namespace {

struct Pool {
  BlockKind kind = BlockKind::device;
  std::uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0, largest = 0;
  int reuse[3] = {1, 1, 1};

  void add(std::uint64_t bytes) {
    used += bytes;
    reserved = std::max(reserved, used);
    used_high = std::max(used_high, used);
    reserved_high = std::max(reserved_high, reserved);
  }
  void remove(std::uint64_t bytes) {
    used -= bytes;
    trim(threshold);
  }
  void trim(std::uint64_t kept) { reserved = std::max(used, std::min(reserved, kept)); }
};

struct Part {
  std::shared_ptr<Pool> pool;
  std::size_t bytes = 0;
};

struct Pools {
  std::map<const Pool*, std::shared_ptr<Pool>> all;
  std::map<const void*, Part> parts;
  Pool *device = make(BlockKind::device), *managed = make(BlockKind::managed), *host = make(BlockKind::pinned);
  Pool *now = device, *now_managed = managed, *now_host = host;

  static Pools& instance() {
    static Pools* const made = new Pools;
    return *made;
  }
  Pool* make(BlockKind kind) {
    auto made = std::make_shared<Pool>();
    made->kind = kind;
    all[made.get()] = made;
    return made.get();
  }
  bool is_default(const Pool* pool) const { return pool == device || pool == managed || pool == host; }
};

Pool* pool_of(cudaMemPool_t handle) {
  const Pools& pools = Pools::instance();
  const auto it = pools.all.find(reinterpret_cast<const Pool*>(handle));
  return it == pools.all.end() ? nullptr : it->second.get();
}
cudaMemPool_t handle_of(Pool* pool) { return reinterpret_cast<cudaMemPool_t>(pool); }

bool is_device(const cudaMemLocation& location) {
  return location.type == cudaMemLocationTypeDevice && location.id == 0;
}
cudaMemLocation place_of(int device) {
  cudaMemLocation location{};
  location.type = cudaMemLocationTypeDevice;
  location.id = device;
  return location;
}
bool is_host(cudaMemLocationType type) {
  return type == cudaMemLocationTypeHost || type == cudaMemLocationTypeHostNuma ||
         type == cudaMemLocationTypeHostNumaCurrent;
}
/// The pools that a place has; null: none.
Pool** current(const cudaMemLocation& location, cudaMemAllocationType type, Pool** by_default) {
  Pools& pools = Pools::instance();
  if (type == cudaMemAllocationTypeManaged) {
    if (by_default != nullptr) *by_default = pools.managed;
    return &pools.now_managed;
  }
  if (type != cudaMemAllocationTypePinned) return nullptr;
  if (is_host(location.type)) {
    if (by_default != nullptr) *by_default = pools.host;
    return &pools.now_host;
  }
  if (!is_device(location)) return nullptr;
  if (by_default != nullptr) *by_default = pools.device;
  return &pools.now;
}

cudaError_t set_attribute(Pool& pool, cudaMemPoolAttr attribute, const void* value) {
  std::uint64_t wide = 0;
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      std::memcpy(&pool.reuse[attribute - cudaMemPoolReuseFollowEventDependencies], value, sizeof(int));
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      std::memcpy(&pool.threshold, value, sizeof(pool.threshold));
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:  // back to what there is
      std::memcpy(&wide, value, sizeof(wide));
      if (wide != 0) return cudaErrorInvalidValue;
      if (attribute == cudaMemPoolAttrUsedMemHigh)
        pool.used_high = pool.used;
      else
        pool.reserved_high = pool.reserved;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t attribute_of(const Pool& pool, cudaMemPoolAttr attribute, void* value) {
  std::uint64_t wide = 0;
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      std::memcpy(value, &pool.reuse[attribute - cudaMemPoolReuseFollowEventDependencies], sizeof(int));
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      wide = pool.threshold;
      break;
    case cudaMemPoolAttrReservedMemCurrent:
      wide = pool.reserved;
      break;
    case cudaMemPoolAttrReservedMemHigh:
      wide = pool.reserved_high;
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      wide = pool.used;
      break;
    case cudaMemPoolAttrUsedMemHigh:
      wide = pool.used_high;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  std::memcpy(value, &wide, sizeof(wide));
  return cudaSuccess;
}

CUresult answer(cudaError_t error) { return static_cast<CUresult>(error); }

cudaError_t allocate_async(const char* function, void** pointer, std::size_t bytes, cudaMemPool_t pool,
                           cudaStream_t stream) {
  return called(function, [&]() -> cudaError_t {
    StreamState* state = nullptr;
    if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
    if (const cudaError_t error = allocate_in_pool(pointer, bytes, pool); error != cudaSuccess) return error;
    if (state->capture && *pointer != nullptr) Blocks::instance().keep_for_graph(*pointer);
    return submit(stream, AllocateWork{*pointer, bytes});
  });
}

}  // namespace

cudaError_t allocate_in_pool(void** pointer, std::size_t bytes, cudaMemPool_t handle) {
  Pools& pools = Pools::instance();
  Pool* const pool = handle == nullptr ? pools.now : pool_of(handle);
  if (pool == nullptr) return cudaErrorInvalidValue;
  if (pool->largest != 0 && bytes > pool->largest - std::min(pool->largest, pool->used))
    return cudaErrorMemoryAllocation;
  if (const cudaError_t error = Blocks::instance().allocate(pointer, bytes, pool->kind); error != cudaSuccess)
    return error;
  if (*pointer == nullptr) return cudaSuccess;
  pools.parts[*pointer] = {pools.all.at(pool), bytes};
  pool->add(bytes);
  return cudaSuccess;
}

bool is_of_pool(const void* pointer) { return Pools::instance().parts.contains(pointer); }

void forget_in_pools(const void* pointer) {
  Pools& pools = Pools::instance();
  const auto it = pools.parts.find(pointer);
  if (it == pools.parts.end()) return;
  it->second.pool->remove(it->second.bytes);
  pools.parts.erase(it);
}

}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  return allocate_async(__func__, pointer, bytes, nullptr, stream);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (pool == nullptr) return told(cudaErrorInvalidValue);
  return allocate_async(__func__, pointer, bytes, pool, stream);
}
cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return called(__func__, [&]() -> cudaError_t {
    Pool* found = nullptr;
    if (pool == nullptr || location == nullptr || current(*location, type, &found) == nullptr)
      return cudaErrorInvalidValue;
    *pool = handle_of(found);
    return cudaSuccess;
  });
}
cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return called(__func__, [&]() -> cudaError_t {
    if (pool == nullptr || location == nullptr) return cudaErrorInvalidValue;
    Pool** const found = current(*location, type, nullptr);
    if (found == nullptr) return cudaErrorInvalidValue;
    *pool = handle_of(*found);
    return cudaSuccess;
  });
}
cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return called(__func__, [&]() -> cudaError_t {
    if (location == nullptr) return cudaErrorInvalidValue;
    Pool **const place = current(*location, type, nullptr), *const of = pool_of(pool);
    if (place == nullptr || of == nullptr || of->kind != (*place)->kind) return cudaErrorInvalidValue;
    *place = of;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  cudaMemLocation location = place_of(device);
  return device == 0 ? cudaMemGetDefaultMemPool(pool, &location, cudaMemAllocationTypePinned)
                     : told(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  cudaMemLocation location = place_of(device);
  return device == 0 ? cudaMemGetMemPool(pool, &location, cudaMemAllocationTypePinned) : told(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  cudaMemLocation location = place_of(device);
  return device == 0 ? cudaMemSetMemPool(&location, cudaMemAllocationTypePinned, pool) : told(cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* of) {
  return called(__func__, [&]() -> cudaError_t {
    if (pool == nullptr || of == nullptr) return cudaErrorInvalidValue;
    if (of->handleTypes != cudaMemHandleTypeNone) return missing("cudaMemPoolCreate of memory to share");
    Pool** const like = current(of->location, of->allocType, nullptr);
    if (like == nullptr) return cudaErrorInvalidValue;
    Pool* const made = Pools::instance().make((*like)->kind);
    made->largest = of->maxSize;
    *pool = handle_of(made);
    return cudaSuccess;
  });
}
// What was allocated of it stays.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return called(__func__, [&]() -> cudaError_t {
    Pools& pools = Pools::instance();
    Pool* const of = pool_of(pool);
    if (of == nullptr || pools.is_default(of)) return cudaErrorInvalidValue;
    if (pools.now == of) pools.now = pools.device;
    if (pools.now_managed == of) pools.now_managed = pools.managed;
    if (pools.now_host == of) pools.now_host = pools.host;
    pools.all.erase(of);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t kept) {
  return called(__func__, [&]() -> cudaError_t {
    Pool* const of = pool_of(pool);
    if (of == nullptr) return cudaErrorInvalidValue;
    of->trim(kept);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return called(__func__, [&]() -> cudaError_t {
    Pool* const of = pool_of(pool);
    return of == nullptr || value == nullptr ? cudaErrorInvalidValue : set_attribute(*of, attribute, value);
  });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return called(__func__, [&]() -> cudaError_t {
    const Pool* const of = pool_of(pool);
    return of == nullptr || value == nullptr ? cudaErrorInvalidValue : attribute_of(*of, attribute, value);
  });
}
// One device, which has all of its pools.
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* given, std::size_t count) {
  return called(__func__, [&]() -> cudaError_t {
    if (pool_of(pool) == nullptr) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (given[i].location.type == cudaMemLocationTypeDevice && given[i].location.id != 0)
        return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return called(__func__, [&]() -> cudaError_t {
    const Pool* const of = pool_of(pool);
    if (of == nullptr || flags == nullptr || location == nullptr) return cudaErrorInvalidValue;
    const bool is_seen = is_device(*location) || (is_host(location->type) && of->kind != BlockKind::device);
    *flags = is_seen ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
    return cudaSuccess;
  });
}

// The driver's: handles, numbers and structures are the same.
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return answer(cudaDeviceGetDefaultMemPool(pool, device));
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return answer(cudaDeviceGetMemPool(pool, device)); }
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) { return answer(cudaDeviceSetMemPool(device, pool)); }
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return answer(cudaMemGetDefaultMemPool(pool, reinterpret_cast<cudaMemLocation*>(location),
                                         static_cast<cudaMemAllocationType>(type)));
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return answer(
      cudaMemGetMemPool(pool, reinterpret_cast<cudaMemLocation*>(location), static_cast<cudaMemAllocationType>(type)));
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return answer(
      cudaMemSetMemPool(reinterpret_cast<cudaMemLocation*>(location), static_cast<cudaMemAllocationType>(type), pool));
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* of) {
  static_assert(sizeof(CUmemPoolProps) == sizeof(cudaMemPoolProps));
  return answer(cudaMemPoolCreate(pool, reinterpret_cast<const cudaMemPoolProps*>(of)));
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) { return answer(cudaMemPoolDestroy(pool)); }
CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t kept) { return answer(cudaMemPoolTrimTo(pool, kept)); }
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return answer(cudaMemPoolSetAttribute(pool, static_cast<cudaMemPoolAttr>(attribute), value));
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return answer(cudaMemPoolGetAttribute(pool, static_cast<cudaMemPoolAttr>(attribute), value));
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* given, std::size_t count) {
  return answer(cudaMemPoolSetAccess(pool, reinterpret_cast<const cudaMemAccessDesc*>(given), count));
}
CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  return answer(cudaMemPoolGetAccess(reinterpret_cast<cudaMemAccessFlags*>(flags), pool,
                                     reinterpret_cast<cudaMemLocation*>(location)));
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  return answer(cudaMallocFromPoolAsync(reinterpret_cast<void**>(pointer), bytes, pool, stream));
}

}  // extern "C"
