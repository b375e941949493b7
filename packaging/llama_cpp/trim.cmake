# Included by CMake at llama.cpp's project() call (CMAKE_PROJECT_llama.cpp_INCLUDE).
# llama-cpp-python forces llama.cpp's `common` library on; the bindings never call it, and it is half of the build.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
