/* SPDX-License-Identifier: BSD-3-Clause */
/* c.cc - qmlsm.h over qmlsm.hpp.
 *
 * rocksdb/c.h does not show what is in rocksdb_options_t: an Options and nothing else.
 * Before that is relied on, a value that the C interface sets must be found there. */
#include "lsm/qmlsm.hpp"

#include <cstdio>
#include <exception>

#include <rocksdb/c.h>

using namespace quickmine::lsm;

struct qm_lsm {
    std::shared_ptr<Handle> handle;
};

static rocksdb::Options *inside(rocksdb_options_t *options)
{
    auto *in = reinterpret_cast<rocksdb::Options *>(options);
    size_t size = rocksdb_options_get_write_buffer_size(options);
    int jobs = rocksdb_options_get_max_background_jobs(options);

    if (in->write_buffer_size != size || in->max_background_jobs != jobs)
        return nullptr;
    rocksdb_options_set_write_buffer_size(options, size ^ 0x5a5a00);
    rocksdb_options_set_max_background_jobs(options, jobs + 3);
    bool same = in->write_buffer_size == (size ^ 0x5a5a00) &&
                in->max_background_jobs == jobs + 3;
    rocksdb_options_set_write_buffer_size(options, size);
    rocksdb_options_set_max_background_jobs(options, jobs);
    return same ? in : nullptr;
}

static void tell(char *says, size_t len, const char *text)
{
    if (says && len > 0)
        snprintf(says, len, "%s", text);
}

void qm_lsm_config_init(struct qm_lsm_config *config)
{
    *config = qm_lsm_config();
    config->mode = QM_LSM_ADAPTIVE;
    config->interval_ms = 1000;
    config->sample = 1;
    config->blocks = 1 << 20;
    config->share = .25;
    config->warm_bytes = 256 << 20;
    config->warm_ms = 1000;
    config->stall_ms = 20;
    config->dump_bytes = 256 << 20;
}

static const char foreign[] = "this RocksDB's rocksdb_options_t is not an Options";

enum qm_lsm_verdict qm_lsm_attach(rocksdb_options_t *options,
                                  const struct qm_lsm_config *config,
                                  struct qm_lsm **lsm, char *says, size_t says_len)
{
    *lsm = nullptr;
    tell(says, says_len, "");
    try {
        rocksdb::Options *in = inside(options);
        if (!in) {
            tell(says, says_len, foreign);
            return QM_LSM_REFUSED;
        }
        Config own;
        if (config)
            static_cast<qm_lsm_config &>(own) = *config;
        auto made = std::make_unique<qm_lsm>(); /* before the options are changed */
        Attached attached = attach(*in, own);
        tell(says, says_len, attached.says.c_str());
        made->handle = std::move(attached.handle);
        if (made->handle)
            *lsm = made.release();
        return static_cast<qm_lsm_verdict>(attached.verdict);
    } catch (const std::exception &e) {
        tell(says, says_len, e.what());
    } catch (...) {
        tell(says, says_len, "an unknown exception");
    }
    return QM_LSM_REFUSED;
}

enum qm_lsm_verdict qm_lsm_add_family(struct qm_lsm *lsm, rocksdb_options_t *options,
                                      unsigned *family, char *says, size_t says_len)
{
    tell(says, says_len, "");
    try {
        rocksdb::Options *in = inside(options);
        std::string text;
        if (!in) {
            tell(says, says_len, foreign);
            return QM_LSM_REFUSED;
        }
        Verdict verdict = lsm->handle->add_family(*in, family, &text);
        tell(says, says_len, text.c_str());
        return static_cast<qm_lsm_verdict>(verdict);
    } catch (const std::exception &e) {
        tell(says, says_len, e.what());
    } catch (...) {
        tell(says, says_len, "an unknown exception");
    }
    return QM_LSM_REFUSED;
}

void qm_lsm_read(struct qm_lsm *lsm, const void *key, size_t len)
{
    qm_lsm_read_family(lsm, 0, key, len);
}

void qm_lsm_read_family(struct qm_lsm *lsm, unsigned family, const void *key,
                        size_t len)
{
    lsm->handle->read(rocksdb::Slice(static_cast<const char *>(key), len), family);
}

void qm_lsm_tick(struct qm_lsm *lsm)
{
    lsm->handle->tick();
}

void qm_lsm_get_stats(struct qm_lsm *lsm, struct qm_lsm_stats *stats)
{
    *stats = lsm->handle->stats();
}

void qm_lsm_detach(struct qm_lsm *lsm)
{
    delete lsm;
}
