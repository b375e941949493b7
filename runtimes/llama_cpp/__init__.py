"""llama.cpp, through llama-cpp-python's low-level bindings. Imported only in a worker process."""

from runtimes.llama_cpp.backend import LlamaCppBackend, LoadOptions
from runtimes.llama_cpp.sizing import Sizes, plan

__all__ = ["LlamaCppBackend", "LoadOptions", "Sizes", "plan"]
