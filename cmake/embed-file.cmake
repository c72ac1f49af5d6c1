# SPDX-License-Identifier: BSD-3-Clause
# qm_embed_file(FILE NAME): FILE's bytes as a C source in the variable NAME_source, which
# defines `const unsigned char NAME[]` and `const unsigned NAME_size`.
function(qm_embed_file file name)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_CURRENT_SOURCE_DIR}/${file} -DOUT=${out}
            -DNAME=${name} -P ${CMAKE_SOURCE_DIR}/cmake/embed-file-run.cmake
    DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed-file-run.cmake VERBATIM)
  set(${name}_source ${out} PARENT_SCOPE)
endfunction()
