/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_transport.cc - see app_context_transport.h.
 *
 * libqmctx is loaded, not linked: it is there for who wants contexts, and the server
 * depends on no more than it ever did.
 */
#include "mariadb.h"
#include "log.h"

#include <dlfcn.h>
#include <mutex>
#include <string>

#include "app_context_transport.h"

struct app_context_transport app_context_transport;

/* What dlsym() finds, to a pointer to a function. */
template <typename T> static bool find(void *library, const char *name, T *function)
{
    *reinterpret_cast<void **>(function) = dlsym(library, name);
    return *function != nullptr;
}

/* Returns NULL, or why it cannot be used. */
static const char *open_library()
{
    void *library = dlopen("libqmctx.so.0", RTLD_NOW | RTLD_LOCAL);

    if (!library || !find(library, "qmctx_announce", &app_context_transport.announce) ||
        !find(library, "qmctx_begin", &app_context_transport.begin) ||
        !find(library, "qmctx_end_to", &app_context_transport.end_to) ||
        !find(library, "qmctx_transport", &app_context_transport.name) ||
        !find(library, "qmctx_connected", &app_context_transport.connected) ||
        !find(library, "qmctx_error", &app_context_transport.error))
        return dlerror();
    return nullptr;
}

/* For qmctx_announce(): of a mount, its file's name or that of the socket beside it
 * will do. */
static std::string destination()
{
    static const std::string suffix = ".ctx";
    std::string where = qm_context_mount ? qm_context_mount : "";

    if (where.empty())
        return "kernel";
    if (where.length() <= suffix.length() ||
        where.compare(where.length() - suffix.length(), suffix.length(), suffix) != 0)
        where += suffix;
    return where;
}

static void open_transport()
{
    struct app_context_transport *transport = &app_context_transport;
    struct qmctx *ctx = nullptr;
    const char *why = open_library();

    if (!why &&
        (transport->announce(destination().c_str(), &ctx) || !transport->connected(ctx)))
        why = transport->error();
    if (why)
        sql_print_warning("qm_context: the storage is not told of contexts%s: %s",
                          ctx ? " for now" : "", why);
    transport->ctx = ctx;
}

bool app_context_have_transport()
{
    static std::once_flag opened;

    std::call_once(opened, open_transport);
    return app_context_transport.ctx != nullptr;
}
