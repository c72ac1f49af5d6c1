# SPDX-License-Identifier: BSD-3-Clause
# A test that takes longer than this is stuck.  They take seconds; but on a machine that is
# busy with other things, and with sanitizers, the same test may take thirty times as long.
set(QM_TEST_TIMEOUT 600)

# All of qm_test()'s programs, for tests/coverage.
add_custom_target(cmocka-programs)

# qm_test(NAME SOURCES... [LIBS libs...] [LABELS labels...]): a cmocka test
# program, run by CTest.  It has the label cmocka, too; and where QM_PURE is set
# (tests/CMakeLists.txt), the label pure, unless it has threads.
function(qm_test name)
  cmake_parse_arguments(T "" "" "LIBS;LABELS" ${ARGN})
  if(QM_PURE AND NOT "concurrent" IN_LIST T_LABELS)
    list(APPEND T_LABELS pure)
  endif()
  add_executable(${name} ${T_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${T_LIBS} qm_harness
                                        Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  add_dependencies(cmocka-programs ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${QM_TEST_TIMEOUT}
                                          LABELS "${T_LABELS};cmocka")
endfunction()

# qm_all_rounds(NAMES...): of these qm_test()s, a test NAME_long with all rounds (qm_rounds()
# in tests/harness.h) and the label long, in a build without sanitizers.
function(qm_all_rounds)
  if(QM_SANITIZE)
    return()
  endif()
  foreach(name ${ARGV})
    add_test(NAME ${name}_long COMMAND ${name})
    set_tests_properties(${name}_long PROPERTIES TIMEOUT ${QM_TEST_TIMEOUT} LABELS "unit;long;pure"
                                                 ENVIRONMENT QM_ROUNDS=all)
  endforeach()
endfunction()

# qm_script_test(NAME SCRIPT [LABELS labels...] [TIMEOUT seconds]): a script that
# starts real programs. It gets BUILD_DIR, SOURCE_DIR and QM_LEFT_OUT (the components
# that are not built) in its environment, ends 0 when it passed, and 77 when something it needs cannot be had (skipped).
function(qm_script_test name script)
  cmake_parse_arguments(T "" "TIMEOUT" "LABELS" ${ARGN})
  set(cost 0)
  if(T_TIMEOUT OR "long" IN_LIST T_LABELS)
    set(cost 100) # begun first, so that none is alone at the end
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT ${QM_TEST_TIMEOUT})
  endif()
  get_property(left_out GLOBAL PROPERTY QM_LEFT_OUT)
  string(REPLACE ";" " " left_out "${left_out}")
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${script})
  set_tests_properties(
    ${name}
    PROPERTIES TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77 LABELS "${T_LABELS}" COST ${cost}
               ENVIRONMENT
               "BUILD_DIR=${CMAKE_BINARY_DIR};SOURCE_DIR=${CMAKE_SOURCE_DIR};QM_SANITIZE=${QM_SANITIZE};QM_LEFT_OUT=${left_out}")
endfunction()
