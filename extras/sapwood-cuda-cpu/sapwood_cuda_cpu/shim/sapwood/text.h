// Texts of errors, made by a function that is called and not by code at each place: what is compiled
// into every library costs the time of its compiler.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace sapwood_cuda {

__attribute__((format(printf, 1, 2), noinline, cold)) inline std::string worded(const char *format, ...) {
    char small[512];
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int size = vsnprintf(small, sizeof small, format, arguments);
    std::string made(small, size < 0 ? 0 : size_t(size) < sizeof small ? size_t(size) : 0);
    if (size >= int(sizeof small)) {
        made.resize(size_t(size));
        vsnprintf(made.data(), size_t(size) + 1, format, again);
    }
    va_end(again);
    va_end(arguments);
    return made;
}

} // namespace sapwood_cuda
