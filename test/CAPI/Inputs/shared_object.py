"""shared_object.py LIBRARY_DIR

Compiles a module through the C API, links it in this process, and loads it as
Python loads libraries: RTLD_LOCAL.
"""

import ctypes as c
import os
import sys
import tempfile

STEP = """
ddp.process_group @dp
func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %0 = tensor.empty() : tensor<4xf32>
  %s = linalg.add ins(%r, %r : tensor<4xf32>, tensor<4xf32>)
                  outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  %t = linalg.add ins(%s, %r : tensor<4xf32>, tensor<4xf32>)
                  outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  return %t : tensor<4xf32>
}
"""


class Handle(c.Structure):
    _fields_ = [("ptr", c.c_void_p)]


class StringRef(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_char)), ("length", c.c_size_t)]


def text(value):
    data = value.encode()
    return StringRef(c.create_string_buffer(data), len(data))


Callback = c.CFUNCTYPE(None, StringRef, c.c_void_p)


@Callback
def on_error(message, _):
    sys.exit("linking failed: " + c.string_at(message.data, message.length).decode())


def build(compiler, runtime):
    """The bytes of the shared object."""

    def call(name, result, *arguments):
        function = getattr(compiler, name)
        function.restype = result
        function.argtypes = [type(argument) for argument in arguments]
        return function(*arguments)

    registry = call("mlirDialectRegistryCreate", Handle)
    call("ddphookRegisterDialects", None, registry)
    context = call("mlirContextCreateWithRegistry", Handle, registry, c.c_bool(False))
    module = call("mlirModuleCreateParse", Handle, context, text(STEP))
    options = call("ddphookCompilerOptionsCreate", Handle)
    call("ddphookCompilerOptionsSetShared", None, options, c.c_bool(True))
    if runtime:
        call("ddphookCompilerOptionsSetRuntime", None, options, text(runtime))
    compiled = call("ddphookCompile", Handle, module, options)
    shared = call(
        "ddphookCompiledModuleGetSharedObject",
        StringRef,
        compiled,
        StringRef(None, 0),
        on_error,
        c.c_void_p(),
    )
    return c.string_at(shared.data, shared.length)


def load(shared):
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(shared)
        file.flush()
        return c.CDLL(file.name, mode=os.RTLD_NOW | os.RTLD_LOCAL)


def run(runtime, shared):
    def check(status):
        if status != 0:
            sys.exit(runtime.ddphook_last_error().decode())

    runtime.ddphook_last_error.restype = c.c_char_p
    library = load(shared)
    job = c.c_void_p()
    check(runtime.ddphook_context_create(None, c.byref(job)))
    module = c.byref(c.c_char.in_dll(library, "ddphook_compiled_module"))
    check(runtime.ddphook_module_load(job, module))
    gradient, result = (c.c_float * 4)(1, 2, 3, 4), (c.c_float * 4)()
    check(library.ddphook_step(gradient, result))
    check(runtime.ddphook_module_unload(module))
    runtime.ddphook_context_destroy(job)
    return list(result)


def main():
    directory = sys.argv[1]
    path = os.path.join(directory, "libddphook_rt.so")
    compiler = c.CDLL(os.path.join(directory, "libDDPHookCAPI.so"))
    runtime = c.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    try:
        load(build(compiler, None))
    except OSError as error:
        print("without the runtime's name:", str(error).split(": ", 1)[1])
    print("with it:", run(runtime, build(compiler, path)))


main()
