/* A stand-in for libnvidia-ml.so.1: the entry points that the appliance calls, with the names and the structures of
 * NVIDIA's NVML API reference. Every call reads the file that $NVML_STAND_IN names and does what it says there.
 *
 * A line is "function.gpu return-code value", without "nvml" and the version: "DeviceGetPowerUsage.1 0 250000".
 * What has no line is not supported. With a "hang" in place of the code, the call returns when the file says
 * something else. Built with -DOLD_DRIVER, it lacks what older drivers lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_MEMORY = 20, UNKNOWN = 999 };

typedef int Return;
typedef void *Device; /* its index, and one more: 0 is no device */

typedef struct {
    int code;
    char text[128];
} Answer;

static Answer read_answer(const char *function, int gpu, int *hangs) {
    Answer answer = {NOT_SUPPORTED, ""};
    char wanted[96], line[256], key[96], code[16];
    snprintf(wanted, sizeof wanted, "%s.%d", function, gpu);
    *hangs = 0;
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        answer.code = UNKNOWN;
        return answer;
    }
    while (fgets(line, sizeof line, file)) {
        char text[128] = "";
        if (sscanf(line, "%95s %15s %127[^\n]", key, code, text) >= 2 && !strcmp(key, wanted)) {
            *hangs = !strcmp(code, "hang");
            answer.code = atoi(code);
            strcpy(answer.text, text);
        }
    }
    fclose(file);
    return answer;
}

static Answer ask(const char *function, int gpu) {
    const struct timespec moment = {0, 5 * 1000 * 1000};
    int hangs;
    Answer answer;
    while (answer = read_answer(function, gpu, &hangs), hangs)
        nanosleep(&moment, NULL);
    return answer;
}

static int index_of(Device device) { return (int)(size_t)device - 1; }

static Return get_number(const char *function, int gpu, unsigned *number) {
    Answer answer = ask(function, gpu);
    *number = (unsigned)strtoul(answer.text, NULL, 10);
    return answer.code;
}

static Return get_text(const char *function, Device device, char *text, unsigned length) {
    Answer answer = ask(function, index_of(device));
    snprintf(text, length, "%s", answer.text);
    return answer.code;
}

/* Of the whole driver: the GPU in its lines is 0. */

Return nvmlInitWithFlags(unsigned flags) { return (void)flags, ask("Init", 0).code; }

Return nvmlShutdown(void) { return ask("Shutdown", 0).code; }

Return nvmlDeviceGetCount_v2(unsigned *count) { return get_number("DeviceGetCount", 0, count); }

/* Of one GPU. */

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    *device = (Device)(size_t)(index + 1);
    return ask("DeviceGetHandleByIndex", (int)index).code;
}

Return nvmlDeviceGetName(Device device, char *name, unsigned length) {
    return get_text("DeviceGetName", device, name, length);
}

Return nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) {
    return get_text("DeviceGetUUID", device, uuid, length);
}

typedef struct {
    unsigned gpu, memory;
} Utilization;

Return nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    rates->memory = 0;
    return get_number("DeviceGetUtilizationRates", index_of(device), &rates->gpu);
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

Return nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    Answer answer = ask("DeviceGetMemoryInfo", index_of(device));
    memory->total = memory->used = 0;
    sscanf(answer.text, "%llu %llu", &memory->used, &memory->total);
    memory->free = memory->total - memory->used;
    return answer.code;
}

Return nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    return get_number("DeviceGetPowerUsage", index_of(device), milliwatts);
}

Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
    return get_number("DeviceGetEnforcedPowerLimit", index_of(device), milliwatts);
}

enum { SENSOR_GPU = 0, CLOCK_SM = 1, PCIE_TX = 0 };

Return nvmlDeviceGetClockInfo(Device device, int clock, unsigned *mhz) {
    return clock == CLOCK_SM ? get_number("DeviceGetClockInfo", index_of(device), mhz) : NOT_SUPPORTED;
}

Return nvmlDeviceGetMaxClockInfo(Device device, int clock, unsigned *mhz) {
    return clock == CLOCK_SM ? get_number("DeviceGetMaxClockInfo", index_of(device), mhz) : NOT_SUPPORTED;
}

Return nvmlDeviceGetPcieThroughput(Device device, int counter, unsigned *kilobytes_s) {
    const char *function = counter == PCIE_TX ? "DeviceGetPcieThroughput/tx" : "DeviceGetPcieThroughput/rx";
    return get_number(function, index_of(device), kilobytes_s);
}

static Return get_reasons(Device device, unsigned long long *reasons) {
    Answer answer = ask("DeviceGetCurrentClocksEventReasons", index_of(device));
    *reasons = strtoull(answer.text, NULL, 10);
    return answer.code;
}

#ifdef OLD_DRIVER

Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) {
    return get_reasons(device, reasons);
}

Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned *celsius) {
    return sensor == SENSOR_GPU ? get_number("DeviceGetTemperature", index_of(device), celsius) : NOT_SUPPORTED;
}

#else

Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *reasons) {
    return get_reasons(device, reasons);
}

typedef struct {
    unsigned version;
    int sensor;
    int celsius;
} Temperature;

Return nvmlDeviceGetTemperatureV(Device device, Temperature *temperature) {
    if (temperature->version != (sizeof *temperature | 1 << 24) || temperature->sensor != SENSOR_GPU)
        return NOT_SUPPORTED;
    return get_number("DeviceGetTemperature", index_of(device), (unsigned *)&temperature->celsius);
}

/* GPU performance monitoring. A sample holds counters, "of the multiprocessors and of the memory"; a metric is how far
 * its counter went between the two samples. */

typedef struct {
    double sm, memory;
} Sample;

typedef struct {
    unsigned version, supported;
} Support;

typedef struct {
    unsigned id;
    Return code;
    double value;
    const char *short_name, *long_name, *unit;
} Metric;

typedef struct {
    unsigned version, count;
    Sample *first, *second;
    Metric metrics[]; /* as many as the header of the caller's day has */
} Metrics;

enum { SM_UTIL = 2, DRAM_BW_UTIL = 10 };

Return nvmlGpmQueryDeviceSupport(Device device, Support *support) {
    return get_number("GpmQueryDeviceSupport", index_of(device), &support->supported);
}

static int samples; /* that were not freed: two GPUs with two each are all that there is room for */

Return nvmlGpmSampleAlloc(Sample **sample) {
    if (samples == 4)
        return NO_MEMORY;
    samples++;
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : NO_MEMORY;
}

Return nvmlGpmSampleFree(Sample *sample) {
    samples--;
    free(sample);
    return SUCCESS;
}

Return nvmlGpmSampleGet(Device device, Sample *sample) {
    Answer answer = ask("GpmSampleGet", index_of(device));
    if (answer.code == SUCCESS)
        sscanf(answer.text, "%lf %lf", &sample->sm, &sample->memory);
    return answer.code;
}

Return nvmlGpmMetricsGet(Metrics *metrics) {
    for (unsigned i = 0; i < metrics->count; i++) {
        Metric *metric = &metrics->metrics[i];
        metric->code = SUCCESS;
        if (metric->id == SM_UTIL)
            metric->value = metrics->second->sm - metrics->first->sm;
        else if (metric->id == DRAM_BW_UTIL)
            metric->value = metrics->second->memory - metrics->first->memory;
        else
            metric->code = NOT_SUPPORTED;
    }
    return metrics->version == 1 ? SUCCESS : NOT_SUPPORTED;
}

#endif
