/* A kernel's choice and a refusal, by the installed header and library. Is C99, and C++ from 2011 on. */
#include <stdio.h>
#include <string.h>
#include <tessera.h>

int main(void) {
  const tessera_field fields[] = {{"head_dim", "64"}, {"mask", "causal"}};
  char* plan = NULL;
  tessera_kernel* kernel = NULL;
  tessera_jit* jit = NULL;
  tessera_jit_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.ignore_environment = 1;
  options.compile_policy = TESSERA_POLICY_FORBID;
  if (tessera_abi_version() != TESSERA_ABI_VERSION || tessera_plan("fmha", fields, 2, &plan) != TESSERA_OK ||
      tessera_jit_open(&options, &jit) != TESSERA_OK) {
    fprintf(stderr, "%s\n", tessera_error_message());
    return 1;
  }
  printf("tessera %s plans %s; ", tessera_version(), strstr(plan, "_d64_") != NULL ? "head_dim 64" : "something else");
  printf("%s\n", tessera_status_name(tessera_jit_kernel(jit, "fmha", fields, 2, &kernel)));
  tessera_text_free(plan);
  tessera_jit_close(jit);
  return kernel == NULL ? 0 : 1;
}
