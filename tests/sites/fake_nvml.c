/* A fake of NVIDIA's libnvidia-ml.so.1 that reads a tree of files.
 *
 * The tree is the folder named by FAKE_NVML_TREE, looked up at every call. One file is one value:
 *
 *   init, driver_version
 *   gpuN/   one folder a GPU, N from 0 without a gap
 *     name, uuid, architecture          text, text, NVML_DEVICE_ARCH_*
 *     compute_capability                "MAJOR MINOR"
 *     energy_mj, power_usage_mw         the counter, nvmlDeviceGetPowerUsage
 *     field_F_S                         field F (185, 186, ...) at scope S
 *     power_model                       of nvmlDevicePerfMetricsGetSamples: "KHZ MW" of the best
 *                                       performance per watt, then of each point of its curve
 *     temperature_c, event_reasons, performance_state
 *     power_limit_mw                    written by a set
 *     power_limits_mw                   "MIN MAX" of a set
 *     enforced_power_limit_mw           where it is another one
 *     set_power_limit                   only to refuse a set
 *     taken_power_limit_mw              what a set takes instead
 *     clock_C_mhz, max_clock_C_mhz      C: graphics, sm, mem, video
 *     min_clock_C_mhz_P, max_clock_C_mhz_P     at performance state P
 *     default_clock_C_mhz               nvmlDeviceGetDefaultApplicationsClock
 *     supported_memory_clocks_mhz       a list
 *     supported_graphics_clocks_mhz_M   a list, at memory clock M
 *     gpu_locked_clocks_mhz, memory_locked_clocks_mhz
 *                                       "MIN MAX", written by a set and removed by a reset
 *     held_to_mhz                       what a power cap holds the graphics clock to
 *     reset_gpu_locked_clocks, reset_memory_locked_clocks      only to refuse a reset
 *
 * A file that holds !N makes its call return the NVML error N (a set: where its file holds it).
 * A file that is not there: 3, not supported; one that may not be read: 4; one that holds no
 * number: 999. A GPU whose folder went away: 15, lost. While clocks are locked, the clock that is
 * shown is the clock_C_mhz of the tree, moved into the locked range, and for the graphics and sm
 * clocks not above held_to_mhz.
 *
 * Signatures, numbers of errors, fields, scopes and clocks: nvml.h of NVIDIA's NVML API reference.
 * Build: gcc -shared -fPIC -O1 -Wall -Wextra -o libnvidia-ml.so.1 fake_nvml.c
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
    UNKNOWN = 999,
};

enum { MAX_GPUS = 64, MAX_TEXT = 4096, PATH_SIZE = 4096 };
enum { VALUE_UNSIGNED_INT = 1, VALUE_UNSIGNED_LONG_LONG = 3 };
enum { FIELD_TOTAL_ENERGY = 83 };
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM, CLOCK_VIDEO, CLOCK_COUNT };

typedef struct {
    int index;
} Device;

typedef struct {
    uint32_t field_id;
    uint32_t scope_id;
    int64_t timestamp;
    int64_t latency_us;
    uint32_t value_type;
    uint32_t nvml_return;
    union {
        double as_double;
        uint32_t as_uint;
        uint64_t as_ulonglong;
    } value;
} FieldValue;

typedef struct {
    unsigned version;
    unsigned sensor;
    int temperature;
} TemperatureV1;

/* nvmlPerfMetricsSamples_v1_t, with its other kind of data only as the bytes that it takes. */
enum { PFPP_1X = 1, CURVE_POINTS = 32, MODEL_SAMPLES = 13, MODEL_CONTROLLERS = 4 };

typedef struct {
    unsigned khz, mw;
} OperatingPoint;

typedef struct {
    unsigned char point_count;
    struct {
        unsigned khz[16], mw;
    } points[CURVE_POINTS];
    unsigned char valid;
    OperatingPoint best, fastest;
    unsigned headroom_mw;
} PowerModel;

typedef struct {
    unsigned count;
    struct {
        unsigned char controller_count;
        struct {
            unsigned type;
            union {
                uint64_t aligned;
                PowerModel model;
            } data;
        } controllers[MODEL_CONTROLLERS];
    } samples[MODEL_SAMPLES];
} PerfMetricsSamples;

_Static_assert(sizeof(PerfMetricsSamples) == 115344, "as nvml.h has it");

static const char *const CLOCKS[CLOCK_COUNT] = {"graphics", "sm", "mem", "video"};
static Device devices[MAX_GPUS];
static int initialised = 0;

static const char *tree(void)
{
    const char *path = getenv("FAKE_NVML_TREE");
    return path ? path : "";
}

static int has_gpu(int index)
{
    char path[PATH_SIZE];
    struct stat status;
    snprintf(path, sizeof path, "%s/gpu%d", tree(), index);
    return stat(path, &status) == 0;
}

/* The text of a file, without the newline at its end; `missing` is returned where it is absent. */
static int read_text(const char *name, char *text, size_t size, int missing)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", tree(), name);
    FILE *file = fopen(path, "r");
    if (!file)
        return errno == EACCES ? NO_PERMISSION : missing;
    size_t count = fread(text, 1, size - 1, file);
    fclose(file);
    text[count] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text[0] == '!' ? atoi(text + 1) : SUCCESS;
}

static int check(const Device *device)
{
    if (!initialised)
        return UNINITIALIZED;
    if (device < devices || device >= devices + MAX_GPUS)
        return INVALID_ARGUMENT;
    return has_gpu(device->index) ? SUCCESS : GPU_IS_LOST;
}

static int read_gpu_text(const Device *device, const char *name, char *text, size_t size)
{
    char path[PATH_SIZE];
    int status = check(device);
    if (status)
        return status;
    snprintf(path, sizeof path, "gpu%d/%s", device->index, name);
    return read_text(path, text, size, NOT_SUPPORTED);
}

static int read_gpu_number(const Device *device, const char *name, uint64_t *value)
{
    char text[MAX_TEXT], *end;
    int status = read_gpu_text(device, name, text, sizeof text);
    if (status)
        return status;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return end == text || *end || errno ? UNKNOWN : SUCCESS;
}

static int read_gpu_uint(const Device *device, const char *name, unsigned *value)
{
    uint64_t wide;
    int status = read_gpu_number(device, name, &wide);
    if (!status)
        *value = (unsigned)wide;
    return status;
}

static int read_gpu_list(const Device *device, const char *name, unsigned *count, unsigned *values)
{
    char text[MAX_TEXT];
    unsigned found[MAX_TEXT / 2], many = 0;
    int status = read_gpu_text(device, name, text, sizeof text);
    if (status)
        return status;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        found[many++] = (unsigned)strtoul(word, NULL, 10);
    unsigned room = *count;
    *count = many;
    if (many > room || (many && !values))
        return INSUFFICIENT_SIZE;
    if (many)
        memcpy(values, found, many * sizeof *found);
    return SUCCESS;
}

static int copy_gpu_text(const Device *device, const char *name, char *text, unsigned size)
{
    char found[MAX_TEXT];
    int status = read_gpu_text(device, name, found, sizeof found);
    if (status)
        return status;
    if (strlen(found) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(text, found);
    return SUCCESS;
}

static int write_gpu_text(const Device *device, const char *name, const char *text)
{
    char path[PATH_SIZE], folder[PATH_SIZE], fresh[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/gpu%d/%s", tree(), device->index, name);
    /* Not among the values: a process killed here leaves it. */
    snprintf(folder, sizeof folder, "%s/../tmp", tree());
    mkdir(folder, 0777);
    snprintf(fresh, sizeof fresh, "%s/nvml-%d", folder, getpid());
    FILE *file = fopen(fresh, "w");
    if (!file)
        return NO_PERMISSION;
    fprintf(file, "%s\n", text);
    if (fclose(file) || rename(fresh, path))
        return UNKNOWN;
    return SUCCESS;
}

static int lock_clocks(const Device *device, const char *name, unsigned least, unsigned most)
{
    char text[MAX_TEXT] = "";
    int status = read_gpu_text(device, name, text, sizeof text);
    if (text[0] == '!' || (status && status != NOT_SUPPORTED))
        return status;
    if (least > most)
        return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u %u", least, most);
    return write_gpu_text(device, name, text);
}

static int unlock_clocks(const Device *device, const char *name, const char *reset)
{
    char path[PATH_SIZE], text[MAX_TEXT] = "";
    int status = read_gpu_text(device, name, text, sizeof text);
    if (text[0] == '!' || (status && status != NOT_SUPPORTED))
        return status;
    text[0] = '\0';
    status = read_gpu_text(device, reset, text, sizeof text);
    if (text[0] == '!')
        return status;
    snprintf(path, sizeof path, "%s/gpu%d/%s", tree(), device->index, name);
    return unlink(path) && errno != ENOENT ? NO_PERMISSION : SUCCESS;
}

static int read_clock(const Device *device, const char *form, unsigned type, unsigned *mhz)
{
    char name[128];
    if (type >= CLOCK_COUNT)
        return INVALID_ARGUMENT;
    snprintf(name, sizeof name, form, CLOCKS[type]);
    return read_gpu_uint(device, name, mhz);
}

/* --- What pynvml calls ------------------------------------------------------------------------ */

int nvmlInitWithFlags(unsigned flags)
{
    char text[MAX_TEXT];
    (void)flags;
    int status = read_text("init", text, sizeof text, SUCCESS);
    if (status)
        return status;
    for (int index = 0; index < MAX_GPUS; index++)
        devices[index].index = index;
    initialised++;
    return SUCCESS;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (!initialised)
        return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    static char text[32];
    snprintf(text, sizeof text, "NVML error %d", status);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    char found[MAX_TEXT];
    int status = initialised ? read_text("driver_version", found, sizeof found, NOT_SUPPORTED)
                             : UNINITIALIZED;
    if (!status)
        snprintf(text, size, "%s", found);
    return status;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!initialised)
        return UNINITIALIZED;
    for (*count = 0; *count < MAX_GPUS && has_gpu((int)*count); (*count)++)
        ;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device)
{
    if (!initialised)
        return UNINITIALIZED;
    if (index >= MAX_GPUS || !has_gpu((int)index))
        return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device)
{
    char found[MAX_TEXT];
    unsigned count;
    int status = nvmlDeviceGetCount_v2(&count);
    if (status)
        return status;
    for (unsigned index = 0; index < count; index++)
        if (!read_gpu_text(&devices[index], "uuid", found, sizeof found) && !strcmp(found, uuid)) {
            *device = &devices[index];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(const Device *device, unsigned *index)
{
    int status = check(device);
    if (!status)
        *index = (unsigned)device->index;
    return status;
}

int nvmlDeviceGetName(const Device *device, char *text, unsigned size)
{
    return copy_gpu_text(device, "name", text, size);
}

int nvmlDeviceGetUUID(const Device *device, char *text, unsigned size)
{
    return copy_gpu_text(device, "uuid", text, size);
}

int nvmlDeviceGetArchitecture(const Device *device, unsigned *architecture)
{
    return read_gpu_uint(device, "architecture", architecture);
}

int nvmlDeviceGetCudaComputeCapability(const Device *device, int *major, int *minor)
{
    unsigned values[2], count = 2;
    int status = read_gpu_list(device, "compute_capability", &count, values);
    if (status)
        return status;
    *major = (int)values[0], *minor = (int)values[1];
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(const Device *device, uint64_t *energy_mj)
{
    return read_gpu_number(device, "energy_mj", energy_mj);
}

int nvmlDeviceGetPowerUsage(const Device *device, unsigned *power_mw)
{
    return read_gpu_uint(device, "power_usage_mw", power_mw);
}

int nvmlDeviceGetPowerManagementLimit(const Device *device, unsigned *limit_mw)
{
    return read_gpu_uint(device, "power_limit_mw", limit_mw);
}

int nvmlDeviceGetEnforcedPowerLimit(const Device *device, unsigned *limit_mw)
{
    int status = read_gpu_uint(device, "enforced_power_limit_mw", limit_mw);
    return status == NOT_SUPPORTED ? read_gpu_uint(device, "power_limit_mw", limit_mw) : status;
}

int nvmlDeviceGetPowerManagementLimitConstraints(const Device *device, unsigned *least,
                                                 unsigned *most)
{
    unsigned values[2], count = 2;
    int status = read_gpu_list(device, "power_limits_mw", &count, values);
    if (status || count != 2)
        return status ? status : UNKNOWN;
    *least = values[0], *most = values[1];
    return SUCCESS;
}

int nvmlDeviceSetPowerManagementLimit(const Device *device, unsigned limit_mw)
{
    char text[MAX_TEXT] = "";
    unsigned least, most, taken;
    int status = read_gpu_text(device, "set_power_limit", text, sizeof text);
    if (text[0] == '!')
        return status;
    status = nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most);
    if (status)
        return status;
    if (limit_mw < least || limit_mw > most)
        return INVALID_ARGUMENT;
    if (!read_gpu_uint(device, "taken_power_limit_mw", &taken))
        limit_mw = taken;
    snprintf(text, sizeof text, "%u", limit_mw);
    return write_gpu_text(device, "power_limit_mw", text);
}

int nvmlDeviceGetFieldValues(const Device *device, int count, FieldValue *values)
{
    int status = check(device);
    if (status)
        return status;
    for (int i = 0; i < count; i++) {
        char name[64];
        uint64_t number = 0;
        snprintf(name, sizeof name, "field_%u_%u", values[i].field_id, values[i].scope_id);
        values[i].nvml_return = (uint32_t)read_gpu_number(device, name, &number);
        values[i].timestamp = 0;
        values[i].latency_us = 0;
        if (values[i].field_id == FIELD_TOTAL_ENERGY) {
            values[i].value_type = VALUE_UNSIGNED_LONG_LONG;
            values[i].value.as_ulonglong = number;
        } else {
            values[i].value_type = VALUE_UNSIGNED_INT;
            values[i].value.as_ulonglong = 0;
            values[i].value.as_uint = (uint32_t)number;
        }
    }
    return SUCCESS;
}

int nvmlDeviceGetTemperature(const Device *device, unsigned sensor, unsigned *celsius)
{
    return sensor ? INVALID_ARGUMENT : read_gpu_uint(device, "temperature_c", celsius);
}

int nvmlDeviceGetTemperatureV(const Device *device, TemperatureV1 *temperature)
{
    unsigned celsius;
    int status = nvmlDeviceGetTemperature(device, temperature->sensor, &celsius);
    if (!status)
        temperature->temperature = (int)celsius;
    return status;
}

int nvmlDeviceGetPerformanceState(const Device *device, unsigned *state)
{
    return read_gpu_uint(device, "performance_state", state);
}

int nvmlDeviceGetCurrentClocksEventReasons(const Device *device, uint64_t *reasons)
{
    return read_gpu_number(device, "event_reasons", reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const Device *device, uint64_t *reasons)
{
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

int nvmlDeviceGetClockInfo(const Device *device, unsigned type, unsigned *mhz)
{
    char text[MAX_TEXT];
    unsigned least, most, held;
    int is_core = type == CLOCK_GRAPHICS || type == CLOCK_SM;
    int status = read_clock(device, "clock_%s_mhz", type, mhz);
    if (status)
        return status;
    const char *lock = is_core             ? "gpu_locked_clocks_mhz"
                       : type == CLOCK_MEM ? "memory_locked_clocks_mhz"
                                           : "";
    if (*lock && !read_gpu_text(device, lock, text, sizeof text) &&
        sscanf(text, "%u %u", &least, &most) == 2)
        *mhz = *mhz < least ? least : *mhz > most ? most : *mhz;
    if (is_core && !read_gpu_uint(device, "held_to_mhz", &held) && *mhz > held)
        *mhz = held;
    return SUCCESS;
}

int nvmlDeviceGetClock(const Device *device, unsigned type, unsigned id, unsigned *mhz)
{
    return id ? NOT_SUPPORTED : nvmlDeviceGetClockInfo(device, type, mhz);
}

int nvmlDeviceGetMaxClockInfo(const Device *device, unsigned type, unsigned *mhz)
{
    return read_clock(device, "max_clock_%s_mhz", type, mhz);
}

int nvmlDeviceGetDefaultApplicationsClock(const Device *device, unsigned type, unsigned *mhz)
{
    return read_clock(device, "default_clock_%s_mhz", type, mhz);
}

int nvmlDeviceGetMinMaxClockOfPState(const Device *device, unsigned type, unsigned state,
                                     unsigned *least, unsigned *most)
{
    char least_form[64], most_form[64];
    snprintf(least_form, sizeof least_form, "min_clock_%%s_mhz_%u", state);
    snprintf(most_form, sizeof most_form, "max_clock_%%s_mhz_%u", state);
    int status = read_clock(device, least_form, type, least);
    return status ? status : read_clock(device, most_form, type, most);
}

int nvmlDeviceGetSupportedMemoryClocks(const Device *device, unsigned *count, unsigned *mhz)
{
    return read_gpu_list(device, "supported_memory_clocks_mhz", count, mhz);
}

int nvmlDeviceGetSupportedGraphicsClocks(const Device *device, unsigned memory_mhz, unsigned *count,
                                         unsigned *mhz)
{
    char name[64];
    snprintf(name, sizeof name, "supported_graphics_clocks_mhz_%u", memory_mhz);
    return read_gpu_list(device, name, count, mhz);
}

int nvmlDeviceSetGpuLockedClocks(const Device *device, unsigned least, unsigned most)
{
    return lock_clocks(device, "gpu_locked_clocks_mhz", least, most);
}

int nvmlDeviceResetGpuLockedClocks(const Device *device)
{
    return unlock_clocks(device, "gpu_locked_clocks_mhz", "reset_gpu_locked_clocks");
}

int nvmlDeviceSetMemoryLockedClocks(const Device *device, unsigned least, unsigned most)
{
    return lock_clocks(device, "memory_locked_clocks_mhz", least, most);
}

int nvmlDeviceResetMemoryLockedClocks(const Device *device)
{
    return unlock_clocks(device, "memory_locked_clocks_mhz", "reset_memory_locked_clocks");
}

int nvmlDevicePerfMetricsGetSamples_v1(const Device *device, PerfMetricsSamples *samples)
{
    unsigned values[2 * CURVE_POINTS + 2], count = 2 * CURVE_POINTS + 2;
    int status = read_gpu_list(device, "power_model", &count, values);
    if (status)
        return status;
    memset(samples, 0, sizeof *samples);
    samples->count = 2; /* of which the second one has no valid model */
    for (unsigned i = 0; i < 2; i++) {
        samples->samples[i].controller_count = 2;
        samples->samples[i].controllers[1].type = PFPP_1X;
        samples->samples[i].controllers[1].data.model.best = (OperatingPoint){345000, 100000};
    }
    PowerModel *model = &samples->samples[0].controllers[1].data.model;
    model->valid = 1;
    model->best = (OperatingPoint){values[0], values[1]};
    model->point_count = (unsigned char)(count / 2 - 1);
    for (unsigned i = 0; i < model->point_count; i++) {
        model->points[i].khz[0] = values[2 * i + 2];
        model->points[i].mw = values[2 * i + 3];
    }
    return SUCCESS;
}
