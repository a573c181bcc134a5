// late_client CASE RUNTIME MODULE: loads an OpenMP runtime and the library (in MODULE) in the order
// of the case, and checks whose threads it takes. 77: the runtime is not installed.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void require(bool good, const char *what) {
    if (good) return;
    std::fprintf(stderr, "late_client: failed: %s\n", what);
    std::_Exit(1);
}

template <typename Function>
Function *entry(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);
    require(symbol != nullptr, name);
    return reinterpret_cast<Function *>(symbol);
}

/// Loads the runtime and has its threads started.
void start_runtime(const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) std::_Exit(77);
    entry<void(int)>(handle, "omp_set_num_threads")(3);
    entry<void(void (*)(void *), void *, unsigned, unsigned)>(handle, "GOMP_parallel")(
        [](void *) {}, nullptr, 0, 0);
}

struct library {
    explicit library(const char *path) {
        void *handle = dlopen(path, RTLD_NOW);
        if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
        require(handle != nullptr, path);
        shares_threads = entry<int()>(handle, "shares_threads");
        threads = entry<int()>(handle, "threads");
        computes = entry<int()>(handle, "computes");
    }
    int (*shares_threads)();
    int (*threads)();
    int (*computes)();
};

/// Runs the rest of the program in a child, and leaves with its status.
void continue_in_child() {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // what waits for threads that are gone waits for ever
        return;
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

/// The runtime's threads stayed in the parent; only the system knows that there was one.
void library_after_fork(const char *runtime, const char *module) {
    start_runtime(runtime);
    continue_in_child();
    const library late(module);
    // LLVM's runtime has forgotten what it was told before the fork.
    entry<void(int)>(RTLD_DEFAULT, "omp_set_num_threads")(3);
    require(late.threads() == 3, "as many threads as the runtime says");
    require(late.computes() == 1, "computes in the child");
}

/// An engine made before there was a runtime takes its threads from then on.
void runtime_after_library(const char *runtime, const char *module) {
    const library early(module);
    require(early.shares_threads() == 0 && early.computes() == 1, "own threads at first");
    start_runtime(runtime);
    require(early.shares_threads() == 1, "the runtime's threads afterwards");
    require(early.threads() == 3 && early.computes() == 1, "computes on them");
}

/// A runtime that came after the fork is sound.
void runtime_after_fork(const char *runtime, const char *module) {
    const library early(module);
    require(early.computes() == 1, "own threads at first");
    continue_in_child();
    require(early.computes() == 1, "own threads in the child");
    start_runtime(runtime);
    require(early.shares_threads() == 1, "the runtime's threads afterwards");
    require(early.threads() == 3 && early.computes() == 1, "computes on them");
}

}  // namespace

int main(int count, char **words) {
    require(count == 4, "three arguments");
    const std::string what = words[1];
    if (what == "library_after_fork")
        library_after_fork(words[2], words[3]);
    else if (what == "runtime_after_library")
        runtime_after_library(words[2], words[3]);
    else if (what == "runtime_after_fork")
        runtime_after_fork(words[2], words[3]);
    else
        require(false, "a known case");
    return 0;
}
