/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-resp.c - the parser of Redis's protocol, fed in pieces.
 *
 * The first two bytes are the pieces' length and whether the client is trusted.
 *
 * Promised: how the bytes come does not change the commands; words lie in the bytes;
 * what is used is there; a word is not longer than it may be. */
#include "fuzz.h"
#include "rowcache/server/resp.h"

enum { MOST = 4096, COMMANDS = 64 };

struct said {
    int end; /* 0 or -1 */
    unsigned count;
    uint64_t sum[COMMANDS];
};

static uint64_t sum_of(const struct qm_resp *resp, const char *bytes)
{
    uint64_t sum = resp->count;

    for (unsigned i = 0; i < resp->count; i++) {
        const char *word = qm_resp_word(resp, bytes, i);

        sum = sum * 31 + resp->word[i].length;
        for (size_t j = 0; j < resp->word[i].length; j++)
            sum = sum * 31 + (unsigned char)word[j];
    }
    return sum;
}

static void parse(const uint8_t *data, size_t size, size_t piece, bool trusted,
                  struct said *said)
{
    char *bytes = malloc(size + 1);
    size_t there = 0, at = 0;
    struct qm_resp resp;

    *said = (struct said){0};
    qm_resp_init(&resp, MOST);
    resp.trusted = trusted;
    while (there < size && said->end == 0) {
        size_t more = size - there < piece ? size - there : piece;

        memcpy(bytes + there, data + there, more);
        there += more;
        for (;;) {
            size_t used = 0;
            int r = qm_resp_parse(&resp, bytes + at, there - at, &used);

            if (r == -1)
                said->end = -1;
            if (r != 1)
                break;
            promise(used > 0 && used <= there - at);
            for (unsigned i = 0; i < resp.count; i++)
                promise(resp.inline_length > 0 ||
                        (resp.word[i].length <= MOST &&
                         resp.word[i].at + resp.word[i].length <= used));
            if (said->count < COMMANDS)
                said->sum[said->count] = sum_of(&resp, bytes + at);
            said->count++;
            at += used;
        }
    }
    qm_resp_free(&resp);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};
    size_t piece = eat_number(&f, 1) + 1;
    bool trusted = eat_number(&f, 1) % 2;
    struct said whole, pieces;

    parse(f.at, f.left, f.left + 1, trusted, &whole);
    parse(f.at, f.left, piece, trusted, &pieces);
    promise(whole.count == pieces.count && whole.end == pieces.end);
    promise(memcmp(whole.sum, pieces.sum, sizeof whole.sum) == 0);
    return 0;
}
