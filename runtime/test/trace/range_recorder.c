/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A library for NVTX_INJECTION64_PATH: writes a line for each range that begins
 * or ends, with the thread that it is on, to the file DDPHOOK_TEST_RANGES. */

#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *file;

static nvtxDomainHandle_t createDomain(const char *name) {
  return (nvtxDomainHandle_t)strdup(name);
}

static nvtxStringHandle_t registerString(nvtxDomainHandle_t domain,
                                         const char *text) {
  (void)domain;
  return (nvtxStringHandle_t)strdup(text);
}

static int push(nvtxDomainHandle_t domain,
                const nvtxEventAttributes_t *attributes) {
  fprintf(file, "%d push %s %s\n", (int)gettid(), (const char *)domain,
          (const char *)attributes->message.registered);
  fflush(file);
  return 0;
}

static int pop(nvtxDomainHandle_t domain) {
  fprintf(file, "%d pop %s\n", (int)gettid(), (const char *)domain);
  fflush(file);
  return 0;
}

__attribute__((visibility("default"))) int
// NVTX gives the name. NOLINTNEXTLINE(readability-identifier-naming)
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getExportTable) {
  const NvtxExportTableCallbacks *callbacks =
      (const NvtxExportTableCallbacks *)getExportTable(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  file = fopen(getenv("DDPHOOK_TEST_RANGES"), "w");
  if (!file || !callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)createDomain;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] =
      (NvtxFunctionPointer)registerString;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
