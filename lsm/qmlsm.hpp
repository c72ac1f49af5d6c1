/* SPDX-License-Identifier: BSD-3-Clause */
/* qmlsm.hpp - qmlsm.h for C++.  See there, and qmlsm(3). */
#ifndef QM_LSM_HPP
#define QM_LSM_HPP

#include <memory>
#include <string>

#include <rocksdb/options.h>

#include <qmlsm.h>

namespace quickmine::lsm
{

struct Config : qm_lsm_config {
    Config()
    {
        qm_lsm_config_init(this);
    }
};

using Stats = qm_lsm_stats;

enum class Verdict {
    works = QM_LSM_WORKS,
    less = QM_LSM_LESS,
    refused = QM_LSM_REFUSED
};

/* Detaches when it is destroyed.  It may outlive the database and the other way round.
 */
class QM_LSM_PUBLIC Handle
{
  public:
    virtual ~Handle() = default;
    /* Options of a further column family; its number goes to read(). */
    virtual Verdict add_family(rocksdb::ColumnFamilyOptions &options, unsigned *family,
                               std::string *says = nullptr) = 0;
    virtual void read(const rocksdb::Slice &key, unsigned family = 0) = 0;
    virtual void tick() = 0;
    virtual Stats stats() = 0;
    virtual void detach() = 0;
};

/* What was said of the options, and the handle, or NULL if they were refused. */
struct Attached {
    std::shared_ptr<Handle> handle;
    Verdict verdict = Verdict::refused;
    std::string says;

    Handle *operator->() const
    {
        return handle.get();
    }
    explicit operator bool() const
    {
        return handle != nullptr;
    }
};

/* An exception (no memory, no thread) leaves the options unchanged. */
QM_LSM_PUBLIC Attached attach(rocksdb::Options &options,
                              const Config &config = Config());
QM_LSM_PUBLIC Attached attach(rocksdb::DBOptions &db,
                              rocksdb::ColumnFamilyOptions &family,
                              const Config &config = Config());

} // namespace quickmine::lsm

#endif
