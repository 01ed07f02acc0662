# _cuda: operators for CUDA devices. Included from CMakeLists.txt.
#
#   DGBENCH_CUDA=auto (default)  where nvcc and a device are, for that device only
#   DGBENCH_CUDA=all             where nvcc is, for sm_75, sm_80 and sm_90 plus PTX; no device needed
#   DGBENCH_CUDA=90              where nvcc is, for this compute capability; several as "80;90"
#   DGBENCH_CUDA=off             never
#
# An option of CMake (-DDGBENCH_CUDA=...) or an environment variable; the option wins. What was
# decided, and why, is written to _cuda_build.json beside the module; `dgbench doctor` shows it.
set(DGBENCH_CUDA "" CACHE STRING "Build the CUDA operators: auto, all, off, or for capabilities")
set(DGBENCH_CUDA_MODE "${DGBENCH_CUDA}")
if(NOT DGBENCH_CUDA_MODE)
  set(DGBENCH_CUDA_MODE "$ENV{DGBENCH_CUDA}")
endif()
if(NOT DGBENCH_CUDA_MODE)
  set(DGBENCH_CUDA_MODE auto)
endif()
if(NOT DGBENCH_CUDA_MODE MATCHES "^(auto|all|off|[0-9]+(;[0-9]+)*)$")
  message(FATAL_ERROR "DGBENCH_CUDA is '${DGBENCH_CUDA_MODE}', allowed are auto, all, off "
                      "and compute capabilities such as 90")
endif()

set(DGBENCH_CUDA_REASON "")
set(DGBENCH_CUDA_ARCHITECTURES "")

if(DGBENCH_CUDA_MODE STREQUAL "off")
  set(DGBENCH_CUDA_REASON "switched off by DGBENCH_CUDA=off")
else()
  find_program(DGBENCH_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin"
               PATHS /usr/local/cuda/bin)
  if(NOT DGBENCH_NVCC)
    set(DGBENCH_CUDA_REASON "no nvcc found (looked on PATH, CUDA_HOME and /usr/local/cuda/bin)")
  elseif(DGBENCH_CUDA_MODE STREQUAL "all")
    set(DGBENCH_CUDA_ARCHITECTURES "75-real;80-real;90")
  elseif(DGBENCH_CUDA_MODE MATCHES "^[0-9]")
    list(TRANSFORM DGBENCH_CUDA_MODE APPEND "-real" OUTPUT_VARIABLE DGBENCH_CUDA_ARCHITECTURES)
  else()
    # The driver's tool says what is there, also where nothing may run on the device at build time.
    find_program(DGBENCH_NVIDIA_SMI nvidia-smi PATHS /usr/local/nvidia/bin)
    if(DGBENCH_NVIDIA_SMI)
      execute_process(
        COMMAND "${DGBENCH_NVIDIA_SMI}" --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE DGBENCH_CAPS OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_QUIET RESULT_VARIABLE DGBENCH_SMI_STATUS)
    endif()
    if(DGBENCH_NVIDIA_SMI AND DGBENCH_SMI_STATUS EQUAL 0 AND DGBENCH_CAPS MATCHES "[0-9]+\\.[0-9]")
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" DGBENCH_CAPS "${DGBENCH_CAPS}")
      list(REMOVE_DUPLICATES DGBENCH_CAPS)
      foreach(cap IN LISTS DGBENCH_CAPS)
        string(REPLACE "." "" cap "${cap}")
        list(APPEND DGBENCH_CUDA_ARCHITECTURES "${cap}-real")
      endforeach()
    else()
      set(DGBENCH_CUDA_REASON
          "nvcc is here but no CUDA device; DGBENCH_CUDA=all builds without one")
    endif()
  endif()
endif()

if(DGBENCH_CUDA_ARCHITECTURES)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${DGBENCH_NVCC}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${DGBENCH_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
  set(DGBENCH_CUDA_DIR "${CMAKE_CURRENT_LIST_DIR}")
  file(GLOB DGBENCH_CUDA_KERNELS CONFIGURE_DEPENDS "${DGBENCH_CUDA_DIR}/*/*.cu")
  file(GLOB DGBENCH_CUDA_BINDINGS CONFIGURE_DEPENDS "${DGBENCH_CUDA_DIR}/*/cuda*.cpp")

  # The launchers are plain C functions over pointers, so the library can be driven without Python.
  add_library(dgbench_cuda_kernels STATIC ${DGBENCH_CUDA_KERNELS})
  target_include_directories(dgbench_cuda_kernels PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_features(dgbench_cuda_kernels PUBLIC cxx_std_17)
  string(REPLACE ";" " " DGBENCH_CUDA_SHOWN "${DGBENCH_CUDA_ARCHITECTURES}")
  target_compile_definitions(dgbench_cuda_kernels PRIVATE
    "DGBENCH_CUDA_ARCHITECTURES=\"${DGBENCH_CUDA_SHOWN}\"")
  target_compile_options(dgbench_cuda_kernels PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-Xcompiler=-Wall>")
  set_target_properties(dgbench_cuda_kernels PROPERTIES
    CUDA_ARCHITECTURES "${DGBENCH_CUDA_ARCHITECTURES}" CUDA_STANDARD 17
    CUDA_RUNTIME_LIBRARY Static POSITION_INDEPENDENT_CODE ON)

  nanobind_add_module(_cuda NB_STATIC NOMINSIZE ${DGBENCH_ABI} ${DGBENCH_CUDA_BINDINGS})
  target_include_directories(_cuda PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_options(_cuda PRIVATE -Wall -Wextra)
  target_link_libraries(_cuda PRIVATE dgbench_cuda_kernels OpenMP::OpenMP_CXX)
  set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  install(TARGETS _cuda LIBRARY DESTINATION dgbench/kernels_cuda)

  # Small cases of every launcher, for compute-sanitizer; built when it is asked for by name.
  file(GLOB DGBENCH_DRIVER_SOURCES CONFIGURE_DEPENDS "${DGBENCH_CUDA_DIR}/common/driver/*.cpp")
  add_executable(kernel_driver EXCLUDE_FROM_ALL ${DGBENCH_DRIVER_SOURCES})
  target_compile_options(kernel_driver PRIVATE -Wall -Wextra -Wno-unknown-pragmas -O1)
  target_link_libraries(kernel_driver PRIVATE dgbench_cuda_kernels)
  set_target_properties(kernel_driver PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  set(DGBENCH_CUDA_BUILT true)
  message(STATUS "dgbench: CUDA operators for ${DGBENCH_CUDA_SHOWN} "
                 "(nvcc ${CMAKE_CUDA_COMPILER_VERSION}, DGBENCH_CUDA=${DGBENCH_CUDA_MODE})")
else()
  set(DGBENCH_CUDA_BUILT false)
  message(STATUS "dgbench: no CUDA operators: ${DGBENCH_CUDA_REASON}")
endif()

string(REPLACE ";" " " DGBENCH_CUDA_SHOWN "${DGBENCH_CUDA_ARCHITECTURES}")
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/_cuda_build.json" CONTENT
"{\"built\": @DGBENCH_CUDA_BUILT@, \"reason\": \"@DGBENCH_CUDA_REASON@\", \"mode\": \"@DGBENCH_CUDA_MODE@\", \"architectures\": \"@DGBENCH_CUDA_SHOWN@\", \"nvcc\": \"@CMAKE_CUDA_COMPILER_VERSION@\", \"flags\": \"-O3 -std=c++17, static CUDA runtime\"}
" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_cuda_build.json" DESTINATION dgbench/kernels_cuda)
