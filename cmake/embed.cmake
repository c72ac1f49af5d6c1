# SPDX-License-Identifier: BSD-3-Clause
# qm_embeddable(TARGET NAME DESCRIPTION [HEADERS headers...] [REQUIRES modules...]
# [LIBS flags...]): installs a static library, libNAME.a, for programs outside this tree:
# with HEADERS below include/quickmine as they lie below the sources, since they include
# each other so, and with NAME.pc, which says how to compile and link with it.  REQUIRES and
# LIBS are what the library itself needs; of a static library, every program has to link them.
# `cmake --install BUILD --component embed` installs these alone.
function(qm_embeddable target name description)
  cmake_parse_arguments(E "" "" "HEADERS;REQUIRES;LIBS" ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  install(TARGETS ${target} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT embed)
  foreach(header ${E_HEADERS})
    cmake_path(GET header PARENT_PATH directory)
    install(FILES ${CMAKE_SOURCE_DIR}/${header} COMPONENT embed
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quickmine/${directory})
  endforeach()

  # The prefix is found from where NAME.pc lies, so `cmake --install --prefix` may change it.
  set(prefix ${CMAKE_INSTALL_PREFIX})
  set(libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    file(RELATIVE_PATH up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
    string(REGEX REPLACE "/$" "" up ${up})
    set(prefix "\${pcfiledir}/${up}")
    set(libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
      set(includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
    endif()
  endif()
  list(JOIN E_REQUIRES " " requires)
  list(JOIN E_LIBS " " libs)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embed.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc
                 @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc COMPONENT embed
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
