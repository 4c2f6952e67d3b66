/* A small program with a SQLite of its own, of whatever version it was compiled with: host EXTENSION.
 *
 * A line of its input is a call: CONNECTION, SQL, then the arguments, separated by tabs. The words
 * .open (its argument is a file) and .close stand in the place of SQL. An argument is n:, i:5,
 * r:1.5 or t:text. It answers each call with lines "row", values; then "ok", or "error", code,
 * sentence. The other programs that play this part are in tests/clients. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>

enum { CONNECTIONS = 8, FIELDS = 16 };

static const char *extension;
static sqlite3 *connections[CONNECTIONS];

static void say(int rc, const char *sentence) {
    if (rc == SQLITE_OK) {
        puts("ok");
    } else {
        printf("error\t%d\t%s\n", rc, sentence);
    }
}

static void open_connection(int i, const char *file) {
    char *sentence = NULL;
    int rc = sqlite3_open(file, &connections[i]);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(connections[i], 1);
        sqlite3_db_config(connections[i], SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
        rc = sqlite3_load_extension(connections[i], extension, NULL, &sentence);
    }
    say(rc, sentence ? sentence : sqlite3_errmsg(connections[i]));
    sqlite3_free(sentence);
}

static void close_connection(int i) {
    int rc = sqlite3_close(connections[i]);
    say(rc, rc == SQLITE_OK ? NULL : sqlite3_errmsg(connections[i]));
    connections[i] = NULL;
}

static double real(const char *text) {
    return strtod(text, NULL); /* knows NaN and Infinity too */
}

static void bind(sqlite3_stmt *statement, int i, const char *argument) {
    const char *value = argument + 2;
    switch (argument[0]) {
    case 'i': sqlite3_bind_int64(statement, i, strtoll(value, NULL, 10)); break;
    case 'r': sqlite3_bind_double(statement, i, real(value)); break;
    case 't': sqlite3_bind_text(statement, i, value, -1, SQLITE_TRANSIENT); break;
    default: sqlite3_bind_null(statement, i);
    }
}

static void call(sqlite3 *db, const char *sql, char **arguments, int count) {
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    for (int i = 0; rc == SQLITE_OK && i < count; i++) {
        bind(statement, i + 1, arguments[i]);
    }
    if (rc == SQLITE_OK) {
        while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
            printf("row");
            for (int i = 0; i < sqlite3_column_count(statement); i++) {
                const char *value = (const char *)sqlite3_column_text(statement, i);
                printf("\t%s", value ? value : "NULL");
            }
            puts("");
        }
    }
    say(rc == SQLITE_DONE ? SQLITE_OK : rc, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
}

/* What a memory checker must find. */
static void misuse(const char *kind) {
    char *volatile memory = malloc(64);
    if (strcmp(kind, ".leak") == 0) {
        memory = NULL;
        puts("ok");
        return;
    }
    memory[0] = 'x';
    free(memory);
    puts(memory[0] == 'x' ? "ok" : "ok ");
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t size = 0;
    if (argc != 2) {
        return 2;
    }
    extension = argv[1];
    while (getline(&line, &size, stdin) > 0) {
        char *fields[FIELDS];
        int count = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *rest = line; rest && count < FIELDS;) {
            fields[count++] = strsep(&rest, "\t");
        }
        int i = atoi(fields[0]);
        if (strcmp(fields[1], ".open") == 0) {
            open_connection(i, fields[2] + 2);
        } else if (strcmp(fields[1], ".close") == 0) {
            close_connection(i);
        } else if (fields[1][0] == '.') {
            misuse(fields[1]);
        } else {
            call(connections[i], fields[1], fields + 2, count - 2);
        }
        fflush(stdout);
    }
    free(line);
    return 0;
}
