// Memory of the device: each allocation lies between guards, so that writes beside it are found.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "text.h"
#include "threads.h"

#define SAPWOOD_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace sapwood_cuda {

constexpr size_t guard_bytes = 256;   // before an allocation, and at least a quarter of it behind
constexpr size_t near_bytes = 64;     // of those, what is looked at after a launch
constexpr unsigned most_checked = 16; // allocations that are looked at after a launch, in turn
constexpr unsigned most_checked_at_rest = 256; // when somebody waits for the device
constexpr unsigned char guard_pattern = 0xa5;

struct Allocation {
    size_t bytes = 0, before = 0, behind = 0; // of the allocation, and of its guards
    const char *name = "", *file = "";        // the call that gave it, or the variable that it is
    int line = 0;
    bool is_variable = true;
};

class Memory {
  public:
    void *allocate(size_t bytes, const char *call, const char *file, int line) {
        const size_t whole = (bytes + near_bytes + 255) & ~size_t(255);
        auto *begin = static_cast<unsigned char *>(aligned_alloc(256, guard_bytes + whole));
        if (!begin) return nullptr;
        const Allocation made{bytes, guard_bytes, whole - bytes, call, file, line, false};
        mark(begin + guard_bytes, made);
        Lock lock(mutex_);
        known_[uintptr_t(begin + guard_bytes)] = made;
        return begin + guard_bytes;
    }

    // Looks after a variable that lies between guards.
    void declare(void *variable, const Allocation &made) {
        Lock lock(mutex_);
        mark(static_cast<unsigned char *>(variable), made);
        known_[uintptr_t(variable)] = made;
    }

    // Says whether it was one; `problem` is set when something wrote beside it.
    bool release(void *memory, std::string &problem) {
        Lock lock(mutex_);
        auto found = known_.find(uintptr_t(memory));
        if (found == known_.end() || found->second.is_variable) return false;
        problem = strayed(*found, found->second.behind, guard_bytes);
        known_.erase(found);
        free(static_cast<unsigned char *>(memory) - guard_bytes);
        return true;
    }

    // Whether some bytes do not reach beyond the allocation in which they begin.
    bool holds(const void *memory, size_t bytes) {
        Lock lock(mutex_);
        auto after = known_.upper_bound(uintptr_t(memory));
        if (after == known_.begin()) return true;
        const auto &[begin, allocation] = *std::prev(after);
        const size_t offset = uintptr_t(memory) - begin;
        return offset >= allocation.bytes || bytes <= allocation.bytes - offset;
    }

    // The call that gave some memory, "" for a variable; none for memory of the host's own.
    const char *giver(const void *memory) {
        Lock lock(mutex_);
        auto after = known_.upper_bound(uintptr_t(memory));
        if (after == known_.begin()) return nullptr;
        const auto &[begin, allocation] = *std::prev(after);
        if (uintptr_t(memory) - begin >= allocation.bytes) return nullptr;
        return allocation.is_variable ? "" : allocation.name;
    }

    // Looks at some allocations, other ones each time; returns what was written to that is none.
    std::string check(size_t most = most_checked) {
        Lock lock(mutex_);
        auto next = known_.upper_bound(seen_);
        for (size_t left = most < known_.size() ? most : known_.size(); left; left--, ++next) {
            if (next == known_.end()) next = known_.begin();
            seen_ = next->first;
            const Allocation &each = next->second;
            std::string problem = strayed(*next, each.behind < near_bytes ? each.behind : near_bytes, near_bytes);
            if (!problem.empty()) return problem;
        }
        return {};
    }

  private:
    static void mark(unsigned char *begin, const Allocation &made) {
        memset(begin - made.before, guard_pattern, made.before);
        memset(begin + made.bytes, guard_pattern, made.behind);
    }

    static std::string strayed(const std::pair<const uintptr_t, Allocation> &known, size_t behind, size_t before) {
        auto *begin = reinterpret_cast<unsigned char *>(known.first);
        const Allocation &made = known.second;
        struct Pattern {
            Pattern() { memset(bytes, guard_pattern, sizeof bytes); }
            unsigned char bytes[guard_bytes + near_bytes];
        };
        static const Pattern pattern;
        if (!memcmp(begin + made.bytes, pattern.bytes, behind) && !memcmp(begin - before, pattern.bytes, before)) return {};
        for (size_t i = 0; i < behind; i++)
            if (begin[made.bytes + i] != guard_pattern) return told(begin, made, "", made.bytes + i);
        for (size_t i = 1; i <= before; i++)
            if (*(begin - i) != guard_pattern) return told(begin, made, "-", i);
        return {};
    }

    static std::string told(unsigned char *begin, const Allocation &made, const char *sign, size_t byte) {
        mark(begin, made); // told once
        return worded("something wrote to byte %s%zu of the %zu bytes %s %s %s %s:%d", sign, byte, made.bytes,
                    made.is_variable ? "of" : "that", made.name, made.is_variable ? "at" : "gave at", made.file, made.line);
    }

    Mutex mutex_;
    std::map<uintptr_t, Allocation> known_;
    uintptr_t seen_ = 0;
};

// Never destroyed: programs free memory as late as they like.
inline Memory &memory() {
    static Memory *made = new Memory;
    return *made;
}

} // namespace sapwood_cuda
