/* SPDX-License-Identifier: BSD-3-Clause */
/* presets.c - see presets.h. */
#include "mining/readahead/presets.h"

static uint32_t at_most(uint64_t n, uint32_t most)
{
    return n < most ? (uint32_t)n : most;
}

/* get_init_ra_size() of Linux 5.5. */
uint32_t qm_linux_first(uint32_t request, const struct qm_caps *caps)
{
    uint64_t size = 1;

    while (size < request)
        size *= 2;
    if (size <= caps->any / 32)
        size *= 4;
    else if (size <= caps->any / 4)
        size *= 2;
    else
        size = caps->any;
    return size < request ? request : (uint32_t)size;
}

/* get_next_ra_size(). */
uint32_t qm_linux_next(uint32_t window, const struct qm_caps *caps)
{
    return at_most((uint64_t)window * (window < caps->any / 16 ? 4 : 2), caps->any);
}

static uint32_t cap_of(const struct qm_layout *layout, const struct qm_caps *caps)
{
    return layout->ssd ? caps->ssd : caps->disk;
}

/* Equation 4 and 5.  The cap is of what is read ahead: a request is never cut. */
uint32_t qm_aware_first(uint32_t request, const struct qm_layout *layout,
                        const struct qm_caps *caps)
{
    uint32_t more = request;

    if (layout->mixed)
        more = at_most(layout->segment, request);
    else if (layout->ssd)
        more = 0;
    return request + at_most(more, cap_of(layout, caps));
}

/* Equation 6 and 7. */
uint32_t qm_aware_next(uint32_t window, uint32_t request,
                       const struct qm_layout *layout, const struct qm_caps *caps)
{
    uint64_t size = (uint64_t)window * (layout->ssd ? 2 : 4);

    if (layout->mixed) {
        size = (uint64_t)window * request / (layout->segment ? layout->segment : 1);
        if (size > (uint64_t)window * 2)
            size = (uint64_t)window * 2;
    }
    return at_most(size ? size : 1, cap_of(layout, caps));
}
