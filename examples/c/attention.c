// Attention through the C interface, as any language may call it: words to a kernel, values by index, a launch on the
// emulator, or with the argument `gpu` on the first GPU. An average of ones is one: each output is checked.
//
//   cc -std=c99 attention.c $(pkg-config --cflags --libs tessera) -o attention
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera.h>

enum { kBatch = 1, kHeads = 2, kSeqlen = 100, kHeadDim = 64, kCount = kBatch * kSeqlen * kHeads * kHeadDim };
enum { kMaxArguments = 64 };

static void check(tessera_status status) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "%s: %s\n%s\n", tessera_status_name(status), tessera_error_message(), tessera_error_notes());
  exit(1);
}

static size_t find(const tessera_kernel* kernel, int32_t kind, const char* name) {
  size_t index = 0;
  check(tessera_kernel_index(kernel, kind, name, &index));
  return index;
}

int main(int argc, char** argv) {
  static const char* const kNames[] = {"q", "k", "v", "o"};
  const tessera_field fields[] = {{"head_dim", "64"}, {"mask", "causal"}};
  tessera_jit* jit = NULL;
  tessera_kernel* kernel = NULL;
  tessera_device* device = NULL;
  check(tessera_jit_open(NULL, &jit));
  check(tessera_jit_kernel(jit, "fmha", fields, 2, &kernel));

  tessera_device_options where;
  memset(&where, 0, sizeof where);
  where.struct_size = sizeof where;
  where.kind = argc > 1 && strcmp(argv[1], "gpu") == 0 ? TESSERA_DEVICE_GPU : TESSERA_DEVICE_EMULATOR;
  check(tessera_device_open(jit, &where, &device));

  // Every value starts as its default; those that are given are set by their index.
  int64_t sizes[kMaxArguments];
  double scalars[kMaxArguments];
  uint64_t buffers[kMaxArguments] = {0};
  tessera_arguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  arguments.sizes = sizes, arguments.num_sizes = tessera_kernel_count(kernel, TESSERA_SIZE);
  arguments.scalars = scalars, arguments.num_scalars = tessera_kernel_count(kernel, TESSERA_SCALAR);
  arguments.buffers = buffers, arguments.num_buffers = tessera_kernel_count(kernel, TESSERA_BUFFER);
  for (size_t i = 0; i < kMaxArguments; ++i) sizes[i] = TESSERA_USE_DEFAULT, scalars[i] = (double)NAN;
  sizes[find(kernel, TESSERA_SIZE, "batch")] = kBatch;
  sizes[find(kernel, TESSERA_SIZE, "heads_q")] = kHeads;
  sizes[find(kernel, TESSERA_SIZE, "heads_kv")] = kHeads;
  sizes[find(kernel, TESSERA_SIZE, "seqlen_q")] = kSeqlen;
  sizes[find(kernel, TESSERA_SIZE, "seqlen_k")] = kSeqlen;

  static uint16_t values[kCount];
  for (size_t i = 0; i < kCount; ++i) values[i] = 0x3F80;  // 1.0 in bf16
  for (size_t i = 0; i < 4; ++i) {
    uint64_t* const buffer = &buffers[find(kernel, TESSERA_BUFFER, kNames[i])];
    check(tessera_device_allocate(device, sizeof values, buffer));
    if (i < 3)
      check(tessera_device_upload(device, *buffer, values, sizeof values, NULL));
    else
      check(tessera_device_poison(device, *buffer, 0xFF, sizeof values));
  }
  check(tessera_kernel_launch(kernel, device, NULL, &arguments));
  check(tessera_device_synchronize(device, NULL, NULL));
  check(tessera_device_download(device, values, buffers[find(kernel, TESSERA_BUFFER, "o")], sizeof values, NULL));

  size_t right = 0;
  for (size_t i = 0; i < kCount; ++i) right += values[i] == 0x3F80;
  printf("%s: %lu of %d outputs are 1\n", tessera_kernel_name(kernel), (unsigned long)right, kCount);
  tessera_kernel_close(kernel);
  tessera_device_close(device);
  tessera_jit_close(jit);
  return right == kCount ? 0 : 1;
}
