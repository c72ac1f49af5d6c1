# SPDX-License-Identifier: BSD-3-Clause
# Run by qm_embed_file() when the file has changed.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
       bytes "${bytes}")
file(WRITE ${OUT} "extern const unsigned char ${NAME}[];
extern const unsigned ${NAME}_size;
const unsigned char ${NAME}[] = {
${bytes}};
const unsigned ${NAME}_size = ${size};
")
