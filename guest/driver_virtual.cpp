// The CUDA driver's virtual memory management: addresses that are reserved, memory without addresses, what is mapped
// where, and who may use it. A mapping can be used from cuMemSetAccess on; read and write are not told apart.
#include <cuda.h>

#include <map>
#include <memory>

#include "guest/driver.h"
#include "guest/memory.h"
#include "tessera/emulator/virtual_memory.h"

using namespace tessera::guest;
using tessera::emulator::PhysicalMemory;
using tessera::emulator::VirtualMemory;

namespace {

struct Allocation {
  std::shared_ptr<PhysicalMemory> memory;
  CUmemAllocationProp properties{};
  int references = 1;  ///< of the program
  int mappings = 0;
};
struct Mapping {
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  unsigned long long access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
};
struct Space {
  std::map<CUdeviceptr, std::size_t> reserved;
  std::map<CUmemGenericAllocationHandle, Allocation> allocations;
  std::map<CUdeviceptr, Mapping> mappings;
  CUmemGenericAllocationHandle next = 1;
};
Space& space() {
  static auto* const made = new Space;
  return *made;
}
VirtualMemory virtual_memory() { return Session::instance().device().virtual_memory(); }

bool is_multiple(std::size_t bytes) { return bytes != 0 && bytes % VirtualMemory::kGranularity == 0; }

// The entry of a map whose range holds the address; end: none does.
template <class Map, class SizeOf>
auto holder(Map& map, CUdeviceptr address, SizeOf size_of) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return map.end();
  --it;
  return address - it->first < size_of(it->second) ? it : map.end();
}
auto mapping_at(CUdeviceptr address) {
  return holder(space().mappings, address, [](const Mapping& mapping) { return mapping.bytes; });
}

// Whole mappings, one after the other, that fill the range.
bool fill_range(CUdeviceptr address, std::size_t bytes) {
  for (const CUdeviceptr end = address + bytes; address < end;) {
    const auto it = space().mappings.find(address);
    if (it == space().mappings.end() || it->second.bytes > end - address) return false;
    address += it->second.bytes;
  }
  return bytes != 0;
}

void forget_unused(CUmemGenericAllocationHandle handle) {
  const auto it = space().allocations.find(handle);
  if (it->second.references != 0 || it->second.mappings != 0) return;
  Blocks::instance().give_back(it->second.memory->bytes());
  space().allocations.erase(it);
}

cudaError_t check_properties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return cudaErrorInvalidValue;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    Session::instance().add_problem("cuMemCreate of memory of the host is not provided");
    return cudaErrorNotSupported;
  }
  return properties->location.id == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

// What cuMemSetAccess changes of one mapping.
void set_access(CUdeviceptr address, Mapping& mapping, unsigned long long access) {
  const bool was_open = mapping.access != CU_MEM_ACCESS_FLAGS_PROT_NONE,
             is_open = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  mapping.access = access;
  if (was_open == is_open) return;
  if (is_open) {
    virtual_memory().map(address, *space().allocations.at(mapping.handle).memory);
    Blocks::instance().add_mapped(pointer_of(address), mapping.bytes);
  } else {
    virtual_memory().unmap(address);
    Blocks::instance().remove_mapped(pointer_of(address));
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return drive(__func__, [&]() -> cudaError_t {
    if (granularity == nullptr) return cudaErrorInvalidValue;
    *granularity = VirtualMemory::kGranularity;
    return check_properties(properties);
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return drive(__func__, [&]() -> cudaError_t {
    if (pointer == nullptr || !is_multiple(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0)
      return cudaErrorInvalidValue;
    *pointer = virtual_memory().reserve(bytes, std::max<std::size_t>(alignment, VirtualMemory::kGranularity));
    space().reserved[*pointer] = bytes;
    return cudaSuccess;
  });
}
CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto it = space().reserved.find(pointer);
    if (it == space().reserved.end() || it->second != bytes) return cudaErrorInvalidValue;
    const auto mapping = space().mappings.lower_bound(pointer);
    if (mapping != space().mappings.end() && mapping->first - pointer < bytes) return cudaErrorInvalidValue;
    virtual_memory().release(pointer);
    space().reserved.erase(it);
    return cudaSuccess;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return drive(__func__, [&]() -> cudaError_t {
    if (const cudaError_t error = check_properties(properties); error != cudaSuccess) return error;
    if (handle == nullptr || !is_multiple(bytes) || flags != 0) return cudaErrorInvalidValue;
    if (!Blocks::instance().take(bytes)) return cudaErrorMemoryAllocation;
    Allocation& made = space().allocations[*handle = space().next++];
    made.memory = std::make_shared<PhysicalMemory>(bytes);
    made.properties = *properties;
    return cudaSuccess;
  });
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto it = space().allocations.find(handle);
    if (it == space().allocations.end() || it->second.references == 0) return cudaErrorInvalidValue;
    --it->second.references;
    forget_unused(handle);
    return cudaSuccess;
  });
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto it = mapping_at(address_of(address));
    if (it == space().mappings.end()) return cudaErrorInvalidValue;
    *handle = it->second.handle;
    ++space().allocations.at(*handle).references;
    return cudaSuccess;
  });
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto it = space().allocations.find(handle);
    if (it == space().allocations.end()) return cudaErrorInvalidValue;
    *properties = it->second.properties;
    return cudaSuccess;
  });
}

CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto memory = space().allocations.find(handle);
    const auto range = holder(space().reserved, pointer, [](std::size_t size) { return size; });
    if (memory == space().allocations.end() || memory->second.references == 0 || offset != 0 || flags != 0 ||
        bytes != memory->second.memory->bytes() || pointer % VirtualMemory::kGranularity != 0 ||
        range == space().reserved.end() || bytes > range->first + range->second - pointer)
      return cudaErrorInvalidValue;
    const auto after = space().mappings.lower_bound(pointer);
    if (mapping_at(pointer) != space().mappings.end() ||
        (after != space().mappings.end() && after->first - pointer < bytes))
      return cudaErrorInvalidValue;
    space().mappings[pointer] = {bytes, handle};
    ++memory->second.mappings;
    return cudaSuccess;
  });
}
CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  return drive(__func__, [&]() -> cudaError_t {
    if (!fill_range(pointer, bytes)) return cudaErrorInvalidValue;
    for (const CUdeviceptr end = pointer + bytes; pointer < end;) {
      const auto it = space().mappings.find(pointer);
      const CUmemGenericAllocationHandle handle = it->second.handle;
      set_access(pointer, it->second, CU_MEM_ACCESS_FLAGS_PROT_NONE);
      pointer += it->second.bytes;
      space().mappings.erase(it);
      --space().allocations.at(handle).mappings;
      forget_unused(handle);
    }
    return cudaSuccess;
  });
}

CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* wanted, std::size_t count) {
  return drive(__func__, [&]() -> cudaError_t {
    if (wanted == nullptr || count == 0 || !fill_range(pointer, bytes)) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || wanted[i].location.id != 0)
        return cudaErrorInvalidDevice;
    for (const CUdeviceptr end = pointer + bytes; pointer < end;) {
      Mapping& mapping = space().mappings.at(pointer);
      set_access(pointer, mapping, wanted[count - 1].flags);
      pointer += mapping.bytes;
    }
    return cudaSuccess;
  });
}
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  return drive(__func__, [&]() -> cudaError_t {
    const auto it = mapping_at(pointer);
    if (flags == nullptr || location == nullptr || it == space().mappings.end()) return cudaErrorInvalidValue;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id != 0) return cudaErrorInvalidDevice;
    *flags = it->second.access;
    return cudaSuccess;
  });
}

}  // extern "C"
