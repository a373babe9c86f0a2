/* A stand-in of NVIDIA's libcuda.so.1 with as much as opening a GPU and loading a function call.
 *
 * Every function returns what the variable FAKE_NAME says, such as FAKE_cuInit=100, else 0 (numbers:
 * CUresult of NVIDIA's CUDA Driver API reference). FAKE_VERSION: what cuDriverGetVersion gives.
 * FAKE_LACKS: names of functions, separated by spaces, that this driver does not have.
 *
 * Build: gcc -shared -fPIC -Wall -Wextra -o libcuda.so.1 fake_libcuda.c
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int result(const char *name)
{
    char variable[128];
    snprintf(variable, sizeof variable, "FAKE_%s", name);
    const char *value = getenv(variable);
    return value ? atoi(value) : 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return result("cuInit");
}

int cuDriverGetVersion(int *version)
{
    const char *value = getenv("FAKE_VERSION");
    *version = value ? atoi(value) : 13000;
    return result("cuDriverGetVersion");
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return result("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return result("cuDeviceGet");
}

int cuGetErrorName(int error, const char **name)
{
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
                          : NULL;
    return *name ? 0 : 1;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "the driver's own words";
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = NULL;
    return result("cuDevicePrimaryCtxRetain");
}

int cuCtxSetCurrent(void *context)
{
    (void)context;
    return result("cuCtxSetCurrent");
}

int cuCtxGetCurrent(void **context)
{
    *context = NULL;
    return result("cuCtxGetCurrent");
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute, (void)device;
    *value = 9;
    return result("cuDeviceGetAttribute");
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return result("cuCtxGetStreamPriorityRange");
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = (void *)1;
    return result("cuStreamCreateWithPriority");
}

int cuStreamDestroy(void *stream)
{
    (void)stream;
    return result("cuStreamDestroy");
}

int cuLibraryLoadData(void **library, const void *code, void *options, void **values, unsigned count,
                      void *library_options, void **library_values, unsigned library_count)
{
    (void)code, (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    *library = (void *)2;
    return result("cuLibraryLoadData");
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return result("cuLibraryUnload");
}

int cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    return result("cuDevicePrimaryCtxRelease");
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = (void *)3;
    return result("cuLibraryGetKernel");
}

/* Prints what is set. */
int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    printf("attribute %d of kernel %ld is %d on device %d\n", attribute, (long)(intptr_t)kernel, value,
           device);
    fflush(stdout);
    return result("cuKernelSetAttribute");
}

static const struct {
    const char *name;
    void *function;
} FUNCTIONS[] = {
    {"cuInit", (void *)cuInit},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuDeviceGetCount", (void *)cuDeviceGetCount},
    {"cuDeviceGet", (void *)cuDeviceGet},
    {"cuGetErrorName", (void *)cuGetErrorName},
    {"cuGetErrorString", (void *)cuGetErrorString},
    {"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", (void *)cuCtxSetCurrent},
    {"cuCtxGetCurrent", (void *)cuCtxGetCurrent},
    {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute},
    {"cuCtxGetStreamPriorityRange", (void *)cuCtxGetStreamPriorityRange},
    {"cuStreamCreateWithPriority", (void *)cuStreamCreateWithPriority},
    {"cuStreamDestroy", (void *)cuStreamDestroy},
    {"cuLibraryLoadData", (void *)cuLibraryLoadData},
    {"cuLibraryUnload", (void *)cuLibraryUnload},
    {"cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease},
    {"cuLibraryGetKernel", (void *)cuLibraryGetKernel},
    {"cuKernelSetAttribute", (void *)cuKernelSetAttribute},
};

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    const char *lacks = getenv("FAKE_LACKS");
    (void)version, (void)flags;
    *function = NULL;
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (!strcmp(name, FUNCTIONS[i].name) && !(lacks && strstr(lacks, name)))
            *function = FUNCTIONS[i].function;
    if (status)
        *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
