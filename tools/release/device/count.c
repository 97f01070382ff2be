/* A plugin for qemu: instructions of each function, most first. Debian's qemu has plugins and no header for them, so what is used of
 * qemu-plugin.h (version 1) is declared here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tb;
struct insn;
typedef uint64_t id;
extern void qemu_plugin_register_vcpu_tb_trans_cb(id, void (*)(id, struct tb *));
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct insn *, int add, void *, uint64_t);
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern const char *qemu_plugin_insn_symbol(const struct insn *);
extern void qemu_plugin_register_atexit_cb(id, void (*)(id, void *), void *);

int qemu_plugin_version = 1;
static struct function {
    const char *name;
    uint64_t count;
} functions[4096];
static size_t used;

static void translated(id plugin, struct tb *block) {
    size_t i, k;
    (void)plugin;
    for (i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct insn *one = qemu_plugin_tb_get_insn(block, i);
        const char *name = qemu_plugin_insn_symbol(one);
        if (!name) name = "(no symbol)";
        for (k = 0; k < used && strcmp(functions[k].name, name); k++) {}
        if (k == sizeof functions / sizeof *functions) exit(1);
        if (k == used) functions[used++].name = strdup(name);
        qemu_plugin_register_vcpu_insn_exec_inline(one, 0, &functions[k].count, 1);
    }
}

static int most_first(const void *a, const void *b) {
    const uint64_t p = ((const struct function *)a)->count, q = ((const struct function *)b)->count;
    return p < q ? 1 : p > q ? -1 : 0;
}

static void ended(id plugin, void *nothing) {
    size_t k;
    (void)plugin, (void)nothing;
    qsort(functions, used, sizeof *functions, most_first);
    for (k = 0; k < used && k < 20; k++) fprintf(stderr, "%14" PRIu64 " %s\n", functions[k].count, functions[k].name);
}

int qemu_plugin_install(id plugin, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    qemu_plugin_register_atexit_cb(plugin, ended, NULL);
    return 0;
}
