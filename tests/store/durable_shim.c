/* Keeps a copy of what the disk would hold after a power loss: a file's bytes as of its last fsync, a folder's names as
 * of the folder's last fsync (a file that was itself synced also has its name, as on ext4). LD_PRELOAD it with
 * DURABLE_ROOT (the folder to watch) and DURABLE_SHADOW (where the copy goes: data/ID for bytes, and a journal of
 * names, replayed by the test). Nothing that was not synced ever reaches the copy. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *why) {
    perror(why);
    _exit(97);
}

/* Inode numbers are used again after a file is removed; with the birth time they are unique. */
static int identify(int dir, const char *name, char *id, size_t size, int *is_dir) {
    struct statx st;
    if (statx(dir, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME | STATX_TYPE, &st) != 0) return -1;
    snprintf(id, size, "%llu-%lld-%u", (unsigned long long)st.stx_ino, (long long)st.stx_btime.tv_sec,
             st.stx_btime.tv_nsec);
    *is_dir = S_ISDIR(st.stx_mode);
    return 0;
}

static void append(const char *shadow, const char *text, size_t length) {
    char path[4096];
    snprintf(path, sizeof path, "%s/journal", shadow);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length) die("shim journal");
    close(fd);
}

static void keep_file(const char *shadow, const char *path, const char *relative, const char *id) {
    char draft[4096], final[4096], line[4096], buffer[1 << 16];
    snprintf(draft, sizeof draft, "%s/data/%s.draft", shadow, id);
    snprintf(final, sizeof final, "%s/data/%s", shadow, id);
    int from = open(path, O_RDONLY), to = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (from < 0 && to >= 0) { close(to); return; } /* the file lost its name meanwhile */
    if (to < 0) die("shim copy");
    for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;)
        if (write(to, buffer, n) != n) die("shim write");
    close(from);
    close(to);
    if (rename(draft, final) != 0) die("shim rename");
    int n = snprintf(line, sizeof line, "F\t%s\t%s\n", relative, id);
    append(shadow, line, n);
}

static void keep_folder(const char *shadow, const char *path, const char *relative) {
    char *text = NULL, id[80];
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    DIR *dir = opendir(path);
    if (dir == NULL || out == NULL) die("shim folder");
    fprintf(out, "D\t%s", relative);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        int is_dir;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (identify(dirfd(dir), e->d_name, id, sizeof id, &is_dir) != 0) continue;
        fprintf(out, "\t%s\t%s", e->d_name, is_dir ? "folder" : id);
    }
    fputc('\n', out);
    fclose(out);
    closedir(dir);
    append(shadow, text, length);
    free(text);
}

static void keep(int fd) {
    const char *root = getenv("DURABLE_ROOT"), *shadow = getenv("DURABLE_SHADOW");
    char link[64], path[4096], id[80];
    int is_dir;
    if (root == NULL || shadow == NULL) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    size_t cut = strlen(root);
    if (n < 0) return;
    path[n] = 0;
    if (strncmp(path, root, cut) != 0 || (path[cut] != '/' && path[cut] != 0)) return;
    const char *relative = path[cut] ? path + cut + 1 : "";
    pthread_mutex_lock(&turn);
    if (identify(fd, "", id, sizeof id, &is_dir) == 0) {
        if (is_dir) keep_folder(shadow, path, relative);
        else keep_file(shadow, path, relative, id);
    }
    pthread_mutex_unlock(&turn);
}

static int through(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(fd);
    if (result == 0) keep(fd);
    return result;
}

int fsync(int fd) { return through("fsync", fd); }
int fdatasync(int fd) { return through("fdatasync", fd); }
