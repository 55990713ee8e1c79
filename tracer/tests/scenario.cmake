# One scenario of traced_app, as `scenario()` of CMakeLists.txt asks for it.
cmake_minimum_required(VERSION 3.21)
file(REMOVE_RECURSE ${DIRECTORY})
file(MAKE_DIRECTORY ${DIRECTORY})
separate_arguments(SCENARIO)
separate_arguments(WRAPPER)
list(GET SCENARIO 0 name)
set(window all)
if(name STREQUAL "window")
  set(window profiler)
elseif(name MATCHES "^signal")
  set(window signal)
endif()
set(steps "")
if(name MATCHES "epoch|early-step")
  set(steps "5:8")
endif()
# The leak checker of a child has no hold of the parent's thread, and says so.
set(leaks 1)
if(name MATCHES "fork$|child$|workers")
  set(leaks 0)
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=${leaks}
    GAPSCOPE_TRACE_DIR=${DIRECTORY} GAPSCOPE_TRACE_FLUSH_MS=50
    GAPSCOPE_TRACE_WINDOW=${window} GAPSCOPE_TRACE_STEPS=${steps} NVTX_INJECTION64_PATH=${TRACER}
    ${WRAPPER} ${APP} ${CUPTI} ${TRACER} ${SCENARIO}
  RESULT_VARIABLE code ERROR_VARIABLE errors)
if(NOT code EQUAL CODE)
  message(FATAL_ERROR "exit code ${code} instead of ${CODE}: ${errors}")
endif()
if(errors)
  message(FATAL_ERROR "output on stderr: ${errors}")
endif()
file(GLOB written ${DIRECTORY}/*/meta.json)
if(NOT written)
  message(FATAL_ERROR "no meta.json")
endif()
