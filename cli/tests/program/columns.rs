//! Columns: fields of rows, filters by them, and what is refused.

use crate::support::{Ran, program, run, run_with};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// Rows of several types, one of which has nothing.
const ROWS: &str = r#"{"key":"a","vector":[1,0],"year":2019,"lang":"en","tags":["rust","db"],"meta":{"score":1,"ok":true}}
{"key":"b","vector":[0.9,0.1],"year":2021,"lang":"de","tags":[],"meta":{"score":2.5}}
{"key":"c","vector":[0.8,0.2],"year":2022,"lang":"it's","tags":["rust"]}
{"key":"d","vector":[0.7,0.3]}
"#;

fn database(dir: &Path) {
    run_with(dir, &["insert", "x.db"], ROWS).ok();
}

fn keys(dir: &Path, expression: &str) -> String {
    let found = run(dir, &["keys", "x.db", "--where", expression]).ok();
    found.lines().collect::<Vec<_>>().join(" ")
}

fn insert(dir: &Path, lines: &str, flags: &[&str]) -> Ran {
    let arguments = [&["insert", "x.db"], flags].concat();
    run_with(dir, &arguments, lines)
}

#[test]
fn fields_become_columns_with_inferred_types() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    assert_eq!(
        run(dir, &["columns", "x.db"]).ok(),
        "lang\tstring\nmeta.ok\tbool\nmeta.score\tfloat\ntags\tstrings\nyear\tint\n"
    );
    let listed = run(dir, &["columns", "x.db", "--json"]).json();
    assert_eq!(listed[4], json!({"column": "year", "type": "int"}));
    let rows = run(dir, &["get", "x.db", "a", "d", "--json"]).json();
    assert_eq!(
        rows[0],
        json!({"key": "a", "vector": [1.0, 0.0], "year": 2019, "lang": "en", "tags": ["rust", "db"],
               "meta.score": 1.0, "meta.ok": true})
    );
    assert_eq!(rows[1].as_object().unwrap().len(), 2, "{}", rows[1]);
    // The same rows again change nothing, and an export is the same rows.
    assert!(insert(dir, ROWS, &[]).ok().contains("4 unchanged"));
    run(dir, &["export", "x.db", "out", "--format", "jsonl"]).ok();
    let again = run(dir, &["insert", "x.db", "out/rows.jsonl"]).ok();
    assert!(again.contains("4 unchanged"), "{again}");
}

#[test]
fn every_command_that_reads_rows_takes_a_filter() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    for (expression, found) in [
        ("year >= 2020 AND lang IN ('en', 'de')", "b"),
        ("tags HAS 'rust'", "a c"),
        ("lang LIKE 'it''%'", "c"),
        ("year IS NULL", "d"),
        ("NOT year = 2019", "b c"),
        ("\"meta.score\" BETWEEN 1 AND 2", "a"),
        ("year > 3000", ""),
    ] {
        assert_eq!(keys(dir, expression), found, "{expression}");
    }
    std::fs::write(dir.join("q.fvecs"), [2, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 0]).unwrap();
    let query = [
        "query",
        "x.db",
        "--vectors",
        "q.fvecs",
        "--where",
        "year > 2019",
    ];
    let shown = [&query[..], &["--columns", "year,tags,meta.score"]].concat();
    let lines = run(dir, &shown).ok();
    let cells: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(cells[0][2..], ["b", "", "2021", "[]", "2.5"]);
    assert_eq!(cells[1][2..], ["c", "", "2022", "[\"rust\"]", ""]);
    assert_eq!(cells.len(), 2);
    let answer = run(dir, &[&shown[..], &["--json"]].concat()).json();
    assert_eq!(
        answer[0]["hits"][1]["columns"],
        json!({"year": 2022, "tags": ["rust"], "meta.score": null})
    );
    let plain = run(dir, &[&query[..], &["--json"]].concat()).json();
    assert_eq!(plain[0]["hits"][0].get("columns"), None);

    let filter = ["--where", "year > 2019"];
    assert_eq!(
        run(dir, &[&["stats", "x.db"], &filter[..]].concat()).ok(),
        "2 rows\n"
    );
    let counted = run(dir, &["stats", "x.db", "--where", "year IS NULL", "--json"]).json();
    assert_eq!(counted, [json!({"rows": 1})]);
    let got = run(
        dir,
        &[&["get", "x.db", "--columns", "lang"], &filter[..]].concat(),
    )
    .ok();
    assert_eq!(got, "b\t[0.9, 0.1]\tde\nc\t[0.8, 0.2]\tit's\n");
    let export = ["export", "x.db", "out", "--format", "jsonl"];
    let exported = run(dir, &[&export[..], &filter].concat()).ok();
    assert_eq!(exported, "exported 2 rows to out\n");
    let rows = std::fs::read_to_string(dir.join("out/rows.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!((rows.len(), &rows[0]["lang"]), (2, &json!("de")));
    // A prefix is a further condition.
    let both = ["delete", "x.db", "--prefix", "c", "--where", "year > 2019"];
    assert_eq!(run(dir, &both).ok(), "deleted 1 row\n");
    let deleted = run(dir, &[&["delete", "x.db", "--json"], &filter[..]].concat()).json();
    assert_eq!(deleted, [json!({"deleted": 1})]);
    assert_eq!(keys(dir, "TRUE"), "a d");
}

#[test]
fn errors_of_filters_point_at_the_character_and_list_the_columns() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    for command in [
        "query x.db --vectors q.npy",
        "get x.db",
        "keys x.db",
        "stats x.db",
        "delete x.db",
        "export x.db out --format jsonl",
    ] {
        let command: Vec<&str> = command.split(' ').collect();
        let said = run(dir, &[&command[..], &["--where", "year >> 3"]].concat()).failed(2);
        assert!(said.contains("\n  year >> 3\n       ^\n"), "{said}");
    }
    for (expression, said) in [
        ("yaer = 3", "the columns are lang (string)"),
        ("colour = 3", "meta.score (float)"),
        ("year = 'x'", "year"),
        ("tags = 'rust'", "HAS"),
    ] {
        let message = run(dir, &["delete", "x.db", "--where", expression]).failed(1);
        assert!(message.contains(said), "{expression}: {message}");
        assert!(
            message.contains(&format!("\n  {expression}\n  ")),
            "{message}"
        );
        assert!(!message.contains("durably"), "{message}");
    }
    let long = format!("year = {}", "1".repeat(10_000));
    let said = run(dir, &["stats", "x.db", "--where", &long]).failed(2);
    assert!(said.contains("10000") && said.len() < 500, "{said}");
    let deep = format!("{}year = 1{}", "(".repeat(500), ")".repeat(500));
    run(dir, &["stats", "x.db", "--where", &deep]).failed(2);
    let said = run(dir, &["get", "x.db", "a", "--columns", "yaer"]).failed(1);
    assert!(
        said.contains("no column \"yaer\"") && said.contains("year (int)"),
        "{said}"
    );
    let said = run(
        dir,
        &["query", "x.db", "--vectors", "q.fvecs", "--columns", "yaer"],
    );
    assert_eq!(said.code, 1);
    let said = run(
        dir,
        &[
            "export", "x.db", "out", "--format", "npy", "--where", "TRUE",
        ],
    )
    .failed(2);
    assert!(said.contains("--where goes with --format jsonl"), "{said}");
    assert!(!dir.join("out").exists());
    assert_eq!(keys(dir, "TRUE"), "a b c d", "nothing was deleted");
}

#[test]
fn values_that_no_column_can_have_name_line_column_and_remedy() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let wide: Vec<String> = (0..5000).map(|at| format!("\"c{at}\":1")).collect();
    let wide = wide.join(",");
    let deep = format!("\"deep\":{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
    for (fields, said) in [
        (
            "\"year\":\"x\"",
            &[
                "column \"year\": \"x\" is a string",
                "has type int",
                "another column",
            ][..],
        ),
        ("\"year\":2020.5", &["column \"year\"", "retype"]),
        (
            "\"year\":9223372036854775808",
            &["column \"year\"", "64 bits; give it as a string"],
        ),
        (
            "\"new\":123456789012345678901",
            &["123456789012345678901 is beyond", "give it as a string"],
        ),
        ("\"new\":NaN", &["is not JSON"]),
        ("\"new\":1e999", &["a number is too large"]),
        (
            "\"new\":[1]",
            &["column \"new\": a number is in a list", "as strings"],
        ),
        (
            "\"new\":[{\"a\":1}]",
            &["column \"new\": an object is in a list"],
        ),
        (
            "\"new\":{\"a\":[[\"x\"]]}",
            &["column \"new.a\": a list is in a list"],
        ),
        ("\"new\":1,\"new\":2", &["the field \"new\" twice"]),
        ("\"new\":{\"a\":1,\"a\":2}", &["the field \"new.a\" twice"]),
        (
            "\"new\":{\"a\":1},\"new.a\":2",
            &["the field \"new.a\" twice"],
        ),
        ("\"new\":{},\"new\":{}", &["the field \"new\" twice"]),
        ("\"\":1", &["1 to 255 bytes"]),
        (&wide, &["1000"]),
        (&deep, &["nest too deeply, at column"]),
    ] {
        let line = format!("{{\"key\":\"e\",\"vector\":[1,1],{fields}}}\n");
        let lines = format!("{{\"key\":\"good\",\"vector\":[1,2],\"year\":7}}\n{line}");
        let message = insert(dir, &lines, &[]).failed(1);
        let cut: String = message.chars().take(600).collect();
        assert!(message.contains("stdin:2: "), "{cut}");
        for said in said {
            assert!(message.contains(said), "{said}: {cut}");
        }
        assert_eq!(
            keys(dir, "year = 7"),
            "good",
            "the rows before it are kept: {fields}"
        );
        run(dir, &["delete", "x.db", "good"]).ok();
    }
    assert_eq!(run(dir, &["columns", "x.db"]).ok().lines().count(), 5);
    // The key is read from `id`, so `key` would be a column.
    let row = "{\"id\":\"e\",\"vector\":[1,1],\"key\":1}\n";
    let message = insert(dir, row, &["--key-field", "id"]).failed(1);
    assert!(
        message.contains("no column can have this name"),
        "{message}"
    );
    insert(dir, row, &["--key-field", "id", "--ignore-unknown"]).ok();
}

#[test]
fn ignored_fields_make_no_columns_and_bad_rows_can_be_skipped() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    insert(dir, ROWS, &["--ignore-unknown"]).ok();
    assert_eq!(run(dir, &["columns", "x.db"]).ok(), "");
    let said = run(dir, &["stats", "x.db", "--where", "year = 1"]).failed(1);
    assert!(said.contains("year"), "{said}");
    // A refused row has no part in the type of a column.
    let lines = r#"{"key":"a","vector":[1,1],"n":"x","o":[1]}
{"key":"b","vector":[1,1],"n":1}
{"key":"c","vector":[1,1],"n":"y"}
{"key":"d","vector":[1,1],"n":2}
"#;
    let ran = insert(dir, lines, &["--skip-bad"]);
    assert!(
        ran.err.contains("skipped stdin:1: column \"o\""),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("skipped stdin:3: column \"n\""),
        "{}",
        ran.err
    );
    assert!(ran.ok().contains("skipped 2 bad rows"));
    assert_eq!(keys(dir, "n > 0"), "b d");
}

#[test]
fn types_are_inferred_over_the_first_rows_and_declared_types_count() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let row = |n: usize, value: &str| format!("{{\"key\":\"{n}\",\"vector\":[1,1]{value}}}\n");
    // The first row with a fraction is the last that is looked at; new columns after that have the type of a value.
    let mut lines: String = (1..4096).map(|n| row(n, ",\"f\":1")).collect();
    lines += &row(4096, ",\"f\":1.5");
    lines += &row(4097, ",\"f\":2,\"late\":1");
    assert!(insert(dir, &lines, &[]).ok().contains("4,097 new"));
    assert_eq!(run(dir, &["columns", "x.db"]).ok(), "f\tfloat\nlate\tint\n");
    let said = insert(dir, &(row(1, "") + &row(2, ",\"late\":\"x\"")), &[]).failed(1);
    assert!(said.contains("stdin:2: column \"late\""), "{said}");

    let columns = ["at:timestamp", "s:string", "a:b:float"];
    let declared = columns.map(|column| ["--column", column]).concat();
    run(
        dir,
        &[&["create", "y.db", "--dim", "2"], &declared[..]].concat(),
    )
    .ok();
    assert_eq!(
        run(dir, &["columns", "y.db"]).ok(),
        "at\ttimestamp\ns\tstring\na:b\tfloat\n"
    );
    let line = r#"{"key":"k","vector":[1,1],"at":"2024-05-01T14:00:00+02:00","a:b":3}"#;
    run_with(dir, &["insert", "y.db"], line).ok();
    let got = run(dir, &["get", "y.db", "k", "--json"]).json();
    assert_eq!(got[0]["at"], "2024-05-01T12:00:00Z");
    let count = run(
        dir,
        &[
            "stats",
            "y.db",
            "--where",
            "at < '2024-05-02' AND \"a:b\" = 3",
        ],
    )
    .ok();
    assert_eq!(count, "1 row\n");
    let said = run_with(dir, &["insert", "y.db"], line.replace("2024-05-01T", "May")).failed(1);
    assert!(said.contains("stdin:1: column \"at\""), "{said}");
    for (column, said) in [
        ("year", "NAME:TYPE"),
        (
            "year:number",
            "the types are bool, int, float, string, strings, timestamp",
        ),
    ] {
        let message = run(dir, &["create", "z.db", "--dim", "2", "--column", column]).failed(2);
        assert!(message.contains(said), "{message}");
    }
    let said = run(
        dir,
        &["create", "z.db", "--dim", "2", "--column", "key:int"],
    )
    .failed(1);
    assert!(said.contains("\"key\" is part of every row"), "{said}");
    assert!(!dir.join("z.db").exists());
}

#[test]
fn columns_are_dropped_and_get_other_types_without_loss() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    assert_eq!(
        run(dir, &["columns", "retype", "x.db", "year", "float"]).ok(),
        "year is now of type float\n"
    );
    assert_eq!(keys(dir, "year = 2021.0"), "b");
    let said = run(dir, &["columns", "retype", "x.db", "meta.score", "int"]).failed(1);
    assert!(said.contains("\"b\""), "names the row: {said}");
    let said = run(dir, &["columns", "retype", "x.db", "year", "number"]).failed(2);
    assert!(said.contains("the types are"), "{said}");
    assert_eq!(
        run(dir, &["columns", "drop", "x.db", "lang", "--json"]).json(),
        [json!({"dropped": "lang"})]
    );
    let said = run(dir, &["columns", "drop", "x.db", "lang"]).failed(1);
    assert!(said.contains("year (float)"), "lists what exists: {said}");
    assert_eq!(
        run(dir, &["get", "x.db", "b", "--json"]).json()[0].get("lang"),
        None
    );
}

#[test]
fn update_sets_values_of_the_rows_that_pass() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let update = |arguments: &[&str]| run(dir, &[&["update", "x.db"], arguments].concat());
    assert_eq!(
        update(&[
            "--where",
            "year > 2019 OR year IS NULL",
            "--set",
            "year=2021",
            "--set",
            "lang=007"
        ])
        .ok(),
        "3 rows passed the filter; changed 3 rows\n"
    );
    assert_eq!(keys(dir, "year = 2021 AND lang = '007'"), "b c d");
    let again = update(&["--where", "year > 2019", "--set", "year=2021", "--json"]).json();
    assert_eq!(again, [json!({"rows": 3, "changed": 0})]);
    update(&[
        "--where",
        "lang = 'en'",
        "--set",
        "lang=null",
        "--set",
        "tags=[\"x\",\"y\"]",
    ])
    .ok();
    assert_eq!(keys(dir, "lang IS NULL AND tags HAS 'y'"), "a");
    update(&["--where", "TRUE", "--set", "new=1.5", "--set", "note=a=b c"]).ok();
    assert_eq!(keys(dir, "new = 1.5 AND note = 'a=b c'").len(), 7);
    for (set, said) in [
        ("year=x", "column \"year\": \"x\" is a string"),
        ("year=2020.5", "column \"year\""),
        ("year=9223372036854775808", "64 bits"),
        (
            "more=123456789012345678901",
            "123456789012345678901 is beyond",
        ),
        ("tags=rust", "column \"tags\""),
        ("more=[1]", "in a list"),
        ("key=b", "\"key\" is part of every row"),
    ] {
        let message = update(&["--where", "TRUE", "--set", set]).failed(1);
        assert!(message.contains(said), "{set}: {message}");
    }
    assert!(
        update(&["--where", "TRUE", "--set", "year"])
            .failed(2)
            .contains("NAME=VALUE")
    );
    assert!(update(&["--where", "TRUE"]).failed(2).contains("--set"));
    assert!(
        update(&["--where", "yaer = 1", "--set", "year=1"])
            .failed(1)
            .contains("year (int)")
    );
    assert_eq!(keys(dir, "year = 2021").len(), 5, "nothing was changed");
}

#[test]
fn an_interrupted_update_has_done_the_first_rows_and_counts_them() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let lines: String = (0..100_000)
        .map(|n| format!("{{\"key\":\"{n}\",\"vector\":[{n},1],\"n\":{n}}}\n"))
        .collect();
    insert(dir, &lines, &["--no-auto"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    let update = ["update", "x.db", "--where", "n >= 10", "--set", "done=true"];
    let child = Command::new(program())
        .args(update)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // After the first batch is in the log, of which a sealed database has almost none.
    let logged = || {
        let logs = std::fs::read_dir(dir.join("x.db/logs")).unwrap().flatten();
        logs.filter_map(|log| log.metadata().ok())
            .map(|log| log.len())
            .sum::<u64>()
    };
    while logged() < 20_000 {}
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    let done = keys(dir, "done");
    let done: Vec<&str> = done.split(' ').collect();
    let first: Vec<String> = (10..10 + done.len()).map(|n| n.to_string()).collect();
    assert!(done == first, "the oldest rows are done first");
    let said = ran.failed(1).replace(',', "");
    let counted = format!("the first {} rows that passed", done.len());
    assert!(said.contains(&counted), "{counted}: {said}");
    let rest = run(dir, &[&update[..], &["--json"]].concat()).json();
    assert_eq!(
        rest,
        [json!({"rows": 99_990, "changed": 99_990 - done.len()})]
    );
}
