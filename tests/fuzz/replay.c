/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c - runs a fuzzer on the files that are named, each once. */
#include "fuzz.h"

int main(int argc, char **argv)
{
    static uint8_t data[1 << 20];

    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        size_t n;

        if (!file) {
            perror(argv[i]);
            return 1;
        }
        n = fread(data, 1, sizeof data, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, n);
    }
    printf("%d inputs\n", argc - 1);
    return argc < 2;
}
