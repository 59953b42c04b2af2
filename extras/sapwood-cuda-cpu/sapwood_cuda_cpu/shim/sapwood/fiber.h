// Stacks that the threads of a block run on, and switching between them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

// SAPWOOD_UCONTEXT takes the portable switch everywhere; it is some ten times slower.
#if !defined(__x86_64__) && !defined(SAPWOOD_UCONTEXT)
#define SAPWOOD_UCONTEXT 1
#endif
#if defined(SAPWOOD_UCONTEXT)
#include <ucontext.h>
#endif

namespace sapwood_cuda {

#if !defined(SAPWOOD_UCONTEXT)

using Context = void *;

// Saves what the calling convention keeps, leaves the old stack in *from, continues on `to`.
__attribute__((naked, noinline)) static void switch_context(Context *, Context *) {
    asm("pushq %%rbp\n\tpushq %%rbx\n\tpushq %%r12\n\tpushq %%r13\n\tpushq %%r14\n\tpushq %%r15\n\t"
        "movq %%rsp, (%%rdi)\n\tmovq (%%rsi), %%rsp\n\t"
        "popq %%r15\n\tpopq %%r14\n\tpopq %%r13\n\tpopq %%r12\n\tpopq %%rbx\n\tpopq %%rbp\n\tretq" ::: "memory");
}

inline void prepare_context(Context *context, char *stack, size_t size, void (*entry)()) {
    auto **top = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + size) & ~15ul);
    *--top = nullptr;                           // keeps the stack aligned as after a call
    *--top = reinterpret_cast<void *>(entry);   // where ret goes
    for (int i = 0; i < 6; i++) *--top = nullptr;
    *context = top;
}

#else

using Context = ucontext_t;

inline void switch_context(Context *from, Context *to) { swapcontext(from, to); }

inline void prepare_context(Context *context, char *stack, size_t size, void (*entry)()) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
}

#endif

// The stacks of one worker, each with a guard page below it.
class Stacks {
  public:
    static constexpr size_t guard = 4096;

    ~Stacks() {
        if (memory_) munmap(memory_, count_ * each_);
    }

    void reserve(size_t count) {
        if (count <= count_) return;
        if (memory_) munmap(memory_, count_ * each_);
        each_ = wanted_size() + guard;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *memory = mmap(nullptr, count * each_, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<char *>(memory);
        count_ = count;
        for (size_t i = 0; i < count; i++) mprotect(memory_ + i * each_, guard, PROT_NONE);
    }

    char *stack(size_t i) const { return memory_ + i * each_ + guard; }

    // Stacks start at different places of a page, or all would meet in one set of the cache.
    size_t size(size_t i) const { return each_ - guard - (i % 31) * 128; }

  private:
    static size_t wanted_size() {
        const char *text = getenv("SAPWOOD_CUDA_STACK");
        size_t wanted = text ? strtoul(text, nullptr, 10) : 0;
        return wanted >= 16384 ? (wanted + 4095) & ~4095ul : 65536;
    }

    char *memory_ = nullptr;
    size_t count_ = 0, each_ = 0;
};

} // namespace sapwood_cuda
