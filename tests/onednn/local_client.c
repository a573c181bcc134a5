/* Opens a library for itself alone, as plug-ins of frameworks do, and prints which oneDNN the drop-in
 * finds behind it. Usage: local_client LIBRARY */
#include <dlfcn.h>
#include <stdio.h>

#include <oneapi/dnnl/dnnl_graph.h>

int main(int count, char **arguments) {
    int capacity = 0;
    if (count != 2 || dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) == NULL) return 1;
    if (dnnl_graph_get_compiled_partition_cache_capacity(&capacity) != dnnl_success) return 2;
    printf("version %d.%d capacity %d\n", dnnl_version()->major, dnnl_version()->minor, capacity);
    return 0;
}
