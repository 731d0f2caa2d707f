//! CSV and TSV with a header. Texts need ONNX Runtime (`make setup`).

use crate::support::{run, run_with};
use crate::texts::database;
use serde_json::json;

const POSTS: &str = "\
id,body,year,score,tag,open
1,\"whales sing, \"\"softly\"\"
and far\",2019,1,x,true

2,crabs walk,,2.5,007,
";

#[test]
fn columns_below_a_header_have_the_type_that_they_look_like() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let Some(()) = database(dir) else { return };
    std::fs::write(dir.join("p.csv"), POSTS).unwrap();
    let insert = [
        "insert",
        "x.db",
        "p.csv",
        "--header",
        "--key-field",
        "id",
        "--text-field",
        "body",
    ];
    assert!(run(dir, &insert).ok().contains("inserted 2 rows (2 new"));
    assert_eq!(
        run(dir, &["columns", "x.db"]).ok(),
        "open\tbool\nscore\tfloat\ntag\tstring\nyear\tint\n"
    );
    let rows = run(dir, &["get", "x.db", "1", "2", "--json"]).json();
    assert_eq!(
        rows[0],
        json!({"key": "1", "text": "whales sing, \"softly\"\nand far", "year": 2019, "score": 1.0, "tag": "x", "open": true})
    );
    assert_eq!(
        rows[1],
        json!({"key": "2", "text": "crabs walk", "score": 2.5, "tag": "007"})
    );
    assert!(run(dir, &insert).ok().contains("2 unchanged"));
    // TSV has no quotes, and the same rows are the same.
    let tsv = "id\tyear\tbody\topen\tscore\ttag\n2\t\tcrabs walk\t\t2.5\t007\n";
    std::fs::write(dir.join("p.tsv"), tsv).unwrap();
    let insert = insert.map(|argument| {
        if argument == "p.csv" {
            "p.tsv"
        } else {
            argument
        }
    });
    assert!(run(dir, &insert).ok().contains("1 unchanged"));
    let hits = run(
        dir,
        &[
            "query",
            "x.db",
            "crabs",
            "--where",
            "score > 2",
            "--columns",
            "tag",
        ],
    )
    .ok();
    assert_eq!(hits.lines().count(), 1);
    assert!(hits.ends_with("\t2\tcrabs walk\t007\n"), "{hits}");

    for (line, said) in [
        (
            "3,crabs,year,1,x,true\n",
            "p.csv:2: column \"year\": \"year\" is a string, but the column has type int",
        ),
        (
            "3,crabs,2020\n",
            "p.csv:2: has 3 fields, and the header has 6",
        ),
        (
            "3,\"crabs\n\n\n",
            "p.csv:2: has a double quote that opens a field and is not closed",
        ),
        (
            "3,\"crabs\"!,1,1,x,\n",
            "p.csv:2: has text after the closing quote of field 2",
        ),
        (",crabs,1,1,x,\n", "p.csv:2: the key is empty"),
    ] {
        let header = POSTS.lines().next().unwrap();
        std::fs::write(dir.join("p.csv"), format!("{header}\n{line}")).unwrap();
        let insert = insert.map(|argument| {
            if argument == "p.tsv" {
                "p.csv"
            } else {
                argument
            }
        });
        let message = run(dir, &insert).failed(1);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn headers_that_do_not_fit_are_errors_before_any_row() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let insert = ["insert", "x.db", "-", "--format", "csv", "--header"];
    for (header, said) in [
        (
            "id,text",
            "stdin:1: the header has no \"key\"; --key-field NAME chooses one of id, text",
        ),
        ("key,body", "the header has no \"text\"; --text-field NAME"),
        ("key,text,a,a", "the header has \"a\" twice"),
        ("key,text,text", "twice"),
        ("key,text,", "1 to 255 bytes"),
        ("key,text,vector", "vectors are read from JSONL"),
    ] {
        let message = run_with(dir, &insert, format!("{header}\n1,2,3,4\n")).failed(1);
        assert!(message.contains(said), "{header}: {message}");
    }
    assert!(!dir.join("x.db").exists());
    std::fs::write(dir.join("x.csv"), "a,b,c\n").unwrap();
    std::fs::write(dir.join("x.txt"), "a\n").unwrap();
    let said = run(dir, &["insert", "x.db", "x.csv"]).failed(1);
    assert!(
        said.contains("has 3 fields; a line is `key,text`, or give --header"),
        "{said}"
    );
    for (arguments, said) in [
        (&["x.txt", "--header"][..], "--header is for CSV and TSV"),
        (&["x.csv", "--key-field", "a"], "CSV and TSV with --header"),
        (
            &["x.csv", "--keys", "x.txt"],
            "--keys is for rows without keys",
        ),
    ] {
        let message = run(dir, &[&["insert", "x.db"], arguments].concat()).failed(2);
        assert!(message.contains(said), "{arguments:?}: {message}");
    }
}
