/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - what a device did, as JSON. */
#include "plugins/device/report.h"

#include <errno.h>
#include <jansson.h>

static json_t *distribution(const struct qm_histogram *h)
{
    static const struct {
        const char *name;
        double percent;
    } points[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}, {"max", 100}};
    json_t *json = json_pack("{s:I, s:f}", "count", (json_int_t)h->count, "mean",
                             qm_histogram_mean(h) / 1e3);

    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        json_object_set_new(
            json, points[i].name,
            json_real((double)qm_histogram_percentile(h, points[i].percent) / 1e3));
    return json;
}

static json_t *stations(const struct qm_device_stats *s, unsigned count, double elapsed)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < count; i++) {
        const struct qm_device_station_stats *one = &s->stations[i];

        json_array_append_new(
            list,
            json_pack("{s:I, s:f, s:f}", "served", (json_int_t)one->served,
                      "utilisation", elapsed > 0 ? one->busy_ns / elapsed : 0.0,
                      "queue_length", elapsed > 0 ? one->waited_ns / elapsed : 0.0));
    }
    return list;
}

/* How the device was set up. */
static void setup(json_t *json, const struct qm_device_config *c)
{
    json_object_set_new(json, "demand_first", json_boolean(c->demand_first));
    json_object_set_new(json, "seed", json_integer((json_int_t)c->seed));
    if (!c->disks)
        return;
    json_object_set_new(json, "queue",
                        json_string(c->order == QM_DEVICE_SSTF ? "sstf" : "fcfs"));
    json_object_set_new(json, "stripe", json_integer((json_int_t)c->stripe));
    json_object_set_new(json, "span", json_integer((json_int_t)c->disk.span));
}

/* The sums over all stations: utilisation as their mean, queue length as their sum. */
static void sums(json_t *json, const struct qm_device_stats *s, unsigned count,
                 double elapsed)
{
    double busy = 0, waited = 0;

    for (unsigned i = 0; i < count; i++) {
        busy += s->stations[i].busy_ns;
        waited += s->stations[i].waited_ns;
    }
    json_object_set_new(json, "utilisation",
                        json_real(elapsed > 0 ? busy / elapsed / count : 0));
    json_object_set_new(json, "queue_length",
                        json_real(elapsed > 0 ? waited / elapsed : 0));
}

static json_t *device_json(const struct qmd_config *config,
                           const struct qm_device_stats *s,
                           const struct qm_histogram *late)
{
    const double elapsed = (double)(s->last - s->first);
    const unsigned count = config->device.stations;
    json_t *json = json_pack(
        "{s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f}", "device", config->name,
        "scale", config->device.scale, "random_16k_us",
        qm_device_expected_ns(&config->device, 16384) / 1e3, "reads",
        (json_int_t)s->reads, "bytes_read", (json_int_t)s->bytes_read, "writes",
        (json_int_t)s->writes, "bytes_written", (json_int_t)s->bytes_written,
        "background", (json_int_t)s->background, "seconds", elapsed / 1e9);

    setup(json, &config->device);
    sums(json, s, count, elapsed);
    json_object_set_new(json, "response_us", distribution(&s->response));
    json_object_set_new(json, "background_response_us",
                        distribution(&s->background_response));
    json_object_set_new(json, "queue_us", distribution(&s->wait));
    json_object_set_new(json, "service_us", distribution(&s->service));
    json_object_set_new(json, "late_us", distribution(late));
    json_object_set_new(json, "stations", stations(s, count, elapsed));
    return json;
}

int qmd_report(FILE *file, const struct qmd_config *config,
               const struct qm_device *device, const struct qm_histogram *late)
{
    json_t *json = device ? device_json(config, qm_device_stats(device), late)
                          : json_pack("{s:s, s:i, s:i}", "device", config->name,
                                      "reads", 0, "writes", 0);
    int r;

    if (!json) {
        errno = ENOMEM;
        return -1;
    }
    r = json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(json);
    if (r == -1 || fputc('\n', file) == EOF || fflush(file) == EOF) {
        errno = errno ? errno : EIO;
        return -1;
    }
    return 0;
}
