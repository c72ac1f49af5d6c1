# SPDX-License-Identifier: BSD-3-Clause
# qm_man(PAGE.SECTION SOURCE.pod): makes and installs a manual page from POD.
find_program(POD2MAN pod2man REQUIRED)
function(qm_man page source)
  string(REGEX MATCH "[0-9]+$" section ${page})
  string(REGEX REPLACE "\\.[0-9]+$" "" name ${page})
  set(out ${CMAKE_BINARY_DIR}/man/${page})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${POD2MAN} --section=${section} --name=${name} --utf8
            --center=QuickMine --release=${PROJECT_VERSION} --errors=die
            ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${out}
    DEPENDS ${source} VERBATIM)
  add_custom_target(man-${page} ALL DEPENDS ${out})
  install(FILES ${out} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
