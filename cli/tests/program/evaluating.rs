//! `eval`: its numbers are computed again, and its page is displayed.

use crate::exporting::python;
use crate::support::{data, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Coarse codes, so that ties are frequent; two models; three right keys per query.
fn database(dir: &Path) {
    let rows = data(&dir.join("x.npy"), 1, 4000, 8);
    let mut queries = Vec::new();
    let noise = crate::support::numbers(5, 60 * 8);
    let mut pairs = String::new();
    for n in 0..60 {
        queries.extend((0..8).map(|d| rows[n * 8 + d] + 0.3 * noise[n * 8 + d]));
        for right in [n, n + 1000, n + 2000] {
            pairs += &format!("{n}\t{right}\n");
        }
    }
    let mut writer = mopqdb_formats::vectors::VectorWriter::create(&dir.join("q.npy"), 8).unwrap();
    writer.write(&queries).unwrap();
    writer.finish().unwrap();
    std::fs::write(dir.join("pairs.tsv"), pairs).unwrap();
    run(dir, &["create", "x.db", "--dim", "8", "--metric", "ip"]).ok();
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    run(
        dir,
        &[
            "train",
            "x.db",
            "--method",
            "pq",
            "--subspaces",
            "2",
            "--codewords",
            "8",
        ],
    )
    .ok();
    run(dir, &["rebuild", "x.db"]).ok();
    run(
        dir,
        &[
            "train",
            "x.db",
            "--method",
            "opq",
            "--subspaces",
            "4",
            "--codewords",
            "16",
        ],
    )
    .ok();
}

const EVAL: [&str; 6] = ["eval", "x.db", "--pairs", "pairs.tsv", "--queries", "q.npy"];

#[test]
fn recall_equals_numpy_on_exported_codes() {
    let Some(python) = python("numpy") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let all = ["--model", "all", "--search", "codes,exact", "--json"];
    let ran = run(dir, &[&EVAL[..], &all].concat());
    assert!(ran.err.contains("has no codes to search by"), "{}", ran.err);
    let lines = ran.json();
    let told = |line: &serde_json::Value| {
        let word = |name: &str| line[name].as_str().unwrap().to_owned();
        (word("method"), word("search"))
    };
    let told: Vec<_> = lines.iter().map(told).collect();
    let expected = [
        ("pq", "codes"),
        ("pq", "exact"),
        ("opq", "codes"),
        ("opq", "exact"),
        ("exact", "exact"),
    ];
    let expected = expected.map(|(method, search)| (method.to_owned(), search.to_owned()));
    assert_eq!(told, expected);
    for exact in [&lines[1], &lines[3], &lines[4]] {
        assert_eq!(exact["recall"], lines[0]["unquantized"]);
        assert!(exact.get("reconstruction_loss").is_none(), "{exact}");
    }
    let measured = [&lines[0], &lines[2]];
    for (n, model) in measured.into_iter().enumerate() {
        let id = model["model"].as_str().unwrap();
        let out = format!("out{n}");
        run(
            dir,
            &["export", "x.db", &out, "--format", "npy", "--model", id],
        )
        .ok();
        let script = format!(
            "
import json, os, numpy as np
load = lambda name: np.load('{out}/' + name + '.npy')
codes, books, vectors = load('codes'), load('codebooks'), load('vectors')
keys = [line.rstrip('\\n') for line in open('{out}/keys.txt')]
at = {{key: n for n, key in enumerate(keys)}}
q = np.load('q.npy')
R = load('rotation') if os.path.exists('{out}/rotation.npy') else np.eye(8, dtype='f4')
table = np.einsum('qms,mls->qml', (q @ R).reshape(len(q), books.shape[0], -1), books).astype('f4')
right = {{}}
for line in open('pairs.tsv'):
    query, key = line.rstrip('\\n').split('\\t')
    right.setdefault(int(query), []).append(at[key])
def recall(scores, k):
    total = 0
    for n, rows in right.items():
        s = scores[n]
        total += np.mean([np.clip((k - (s > s[r] + 1e-6).sum()) / (abs(s - s[r]) <= 1e-6).sum(), 0, 1) for r in rows])
    return total / len(right)
coded = sum(table[:, m, codes[:, m]] for m in range(books.shape[0]))
decoded = np.concatenate([books[m][codes[:, m]] for m in range(books.shape[0])], axis=1)
rotated = vectors @ R
print(json.dumps({{
    'recall': {{str(k): recall(coded, k) for k in (10, 50, 100)}},
    'unquantized': {{str(k): recall(q @ vectors.T, k) for k in (10, 50, 100)}},
    'reconstruction_loss': float(((rotated - decoded) ** 2).sum(1).mean()),
    'relative_distortion': float(((rotated - decoded) ** 2).sum(1).mean() / ((rotated - rotated.mean(0)) ** 2).sum(1).mean()),
    'codewords_used': [len(set(codes[:, m])) for m in range(books.shape[0])],
    'distinct_codes': len(set(map(bytes, codes))),
}}))
"
        );
        let output = Command::new(&python)
            .args(["-c", &script])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let theirs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for field in ["recall", "unquantized"] {
            for k in ["10", "50", "100"] {
                let (ours, theirs) = (
                    model[field][k].as_f64().unwrap(),
                    theirs[field][k].as_f64().unwrap(),
                );
                assert!(
                    (ours - theirs).abs() < 2e-3,
                    "{field}@{k}: {ours}, numpy {theirs}"
                );
            }
        }
        for field in ["reconstruction_loss", "relative_distortion"] {
            let (ours, theirs) = (
                model[field].as_f64().unwrap(),
                theirs[field].as_f64().unwrap(),
            );
            assert!(
                (ours / theirs - 1.0).abs() < 1e-4,
                "{field}: {ours}, numpy {theirs}"
            );
        }
        assert_eq!(model["codewords_used"], theirs["codewords_used"]);
        assert_eq!(model["distinct_codes"], theirs["distinct_codes"]);
        let (worst, best) = (
            model["recall_worst"]["10"].as_f64().unwrap(),
            model["recall_best"]["10"].as_f64().unwrap(),
        );
        let recall = model["recall"]["10"].as_f64().unwrap();
        assert!(
            worst <= recall && recall <= best && (n > 0 || worst < best),
            "{worst} {recall} {best}"
        );
    }
    let difference = &measured[1]["difference"]["100"];
    let (low, high) = (
        difference["low"].as_f64().unwrap(),
        difference["high"].as_f64().unwrap(),
    );
    let mean = difference["mean"].as_f64().unwrap();
    assert!(low <= mean && mean <= high && low < high, "{difference}");
}

#[test]
fn exclude_self_excludes_a_row_that_is_the_query() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 500, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    // Each row is a query for itself and its neighbour; the row itself always comes first.
    let pairs: String = (0..50)
        .map(|n| format!("{n}\t{n}\n{n}\t{}\n", n + 1))
        .collect();
    std::fs::write(dir.join("pairs.tsv"), pairs).unwrap();
    let eval = |more: &[&str]| {
        let arguments = [
            &[
                "eval",
                "x.db",
                "--pairs",
                "pairs.tsv",
                "--queries",
                "x.npy",
                "-k",
                "1,500",
                "--json",
            ],
            more,
        ]
        .concat();
        run(dir, &arguments).json().remove(0)
    };
    let with = eval(&[]);
    assert_eq!(
        (with["recall"]["1"].as_f64(), with["recall"]["500"].as_f64()),
        (Some(0.5), Some(1.0))
    );
    assert_eq!(with["method"], "exact");
    let without = eval(&["--exclude-self"]);
    assert!(without["recall"]["1"].as_f64().unwrap() < 0.2, "{without}");
    assert_eq!(without["recall"]["500"].as_f64(), Some(1.0));
    std::fs::write(dir.join("pairs.tsv"), "0\t0\n").unwrap();
    let arguments = ["eval", "x.db", "--pairs", "pairs.tsv", "--queries", "x.npy"];
    let said = run(dir, &[&arguments[..], &["--exclude-self"]].concat()).failed(1);
    assert!(
        said.contains("the only right answer of each query is the query itself"),
        "{said}"
    );
}

#[test]
fn the_page_is_self_contained_and_a_browser_displays_it() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let table = run(
        dir,
        &[&EVAL[..], &["--model", "all", "--html", "report.html"]].concat(),
    )
    .ok();
    assert!(
        table.contains("pq") && table.contains("opq") && table.contains("exact"),
        "{table}"
    );
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    for wanted in [
        "recall@k",
        "mean squared error",
        "subspace",
        "<h2>Hits</h2>",
        "class=\"right\"",
        "<polyline",
    ] {
        assert!(page.contains(wanted), "the page has no {wanted}");
    }
    for outside in ["http://", "https://", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    let Some(browser) = browser() else { return };
    let shot = dir.join("report.png");
    let output = Command::new(&browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1000,1600",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--screenshot={}", shot.display()))
        .arg(format!("file://{}", dir.join("report.html").display()))
        .output()
        .unwrap();
    assert!(
        output.status.success() && shot.is_file(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        std::fs::metadata(&shot).unwrap().len() > 20_000,
        "the screenshot is blank"
    );
    let text = Command::new(&browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", dir.join("report.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&text.stdout).into_owned();
    assert_eq!(
        dom.matches("class=\"codewords\"").count(),
        2,
        "two models' codewords are shown"
    );
    if let Some(keep) = std::env::var_os("MOPQDB_KEEP_SCREENSHOT") {
        std::fs::copy(&shot, PathBuf::from(keep)).unwrap();
    }
}

#[test]
fn any_two_models_are_compared_including_exact() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let opq = run(dir, &["models", "x.db"]).ok();
    let opq = opq.lines().find(|line| line.contains("opq")).unwrap();
    let opq = opq.split('\t').nth(1).unwrap();
    let eval = |more: &[&str]| run(dir, &[&EVAL[..], more].concat());
    // The same model given twice is measured once. The others are compared with the first.
    let both = ["--model", "exact", "--model", opq, "--model", "exact"];
    let coded = ["--search", "auto,codes", "--candidates", "100"];
    let measured = eval(&[&both[..], &coded, &["--json"]].concat()).json();
    assert_eq!(measured.len(), 3);
    let method = |n: usize| measured[n]["method"].as_str().unwrap();
    assert_eq!((method(0), method(1), method(2)), ("exact", "opq", "opq"));
    for n in [1, 2] {
        assert_eq!(measured[n]["compared_with"], measured[0]["model"]);
        assert_eq!(measured[n]["compared_with_search"], "auto");
    }
    let difference = |n: usize| measured[n]["difference"]["10"]["mean"].as_f64().unwrap();
    let (rescored, codes) = (difference(1), difference(2));
    assert!(codes < 0.0 && rescored > codes / 2.0, "{rescored} {codes}");

    let table = eval(&[&both[..], &["--html", "page.html"]].concat()).ok();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "model",
            "method",
            "search",
            "recall@10",
            "recall@50",
            "recall@100",
            "loss",
            "used"
        ],
        "a pipe gets the header"
    );
    assert_eq!((lines.len(), lines[1][1], lines[2][1]), (3, "exact", "opq"));
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    // Two search modes for rows without codes, and three with codes.
    for (side, count) in [("<div><small>exact ", 24), ("<div><small>opq ", 36)] {
        assert_eq!(page.matches(side).count(), count, "{side}");
    }
    for title in [": codes<", ": codes, then stored vectors<", ": exact<"] {
        assert!(page.contains(title), "{title}");
    }
    let said = eval(&["--model", "exact", "--model", "zzz"]).failed(1);
    assert!(
        said.contains("zzz") && said.contains("mopqdb models"),
        "{said}"
    );
}

#[test]
fn search_modes_are_compared_with_the_first_and_with_exact_search() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let eval = |more: &[&str]| run(dir, &[&EVAL[..], more].concat());
    let measured = eval(&["--search", "codes,auto,exact", "-k", "1,10,100", "--json"]).json();
    let number = |line: usize, path: [&str; 3]| {
        let value = path
            .iter()
            .fold(&measured[line], |value, name| match *name {
                "" => value,
                name => &value[name],
            });
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{path:?}: {value}"))
    };
    let recall = |line: usize| number(line, ["recall", "10", ""]);
    assert_eq!(recall(2), number(0, ["unquantized", "10", ""]));
    for line in [0, 1] {
        let [mean, low, high] =
            ["mean", "low", "high"].map(|name| number(line, ["ratio_to_exact", "10", name]));
        assert!((mean - recall(line) / recall(2)).abs() < 1e-12);
        assert!(low <= mean && mean <= high, "{low} {mean} {high}");
    }
    assert!(measured[2].get("ratio_to_exact").is_none());
    assert!(measured[0].get("difference").is_none() && recall(0) < recall(1));
    assert_eq!(measured[1]["compared_with_search"], "codes");
    // Each k is measured with the candidates of a query for k hits.
    let candidates = serde_json::json!({"1": 400, "10": 400, "100": 1000});
    assert_eq!(measured[1]["candidates"], candidates);
    assert!(measured[0].get("candidates").is_none());
    let fixed = &eval(&["--candidates", "100", "--json"]).json()[0];
    assert_eq!(
        fixed["candidates"],
        serde_json::json!({"10": 100, "50": 100, "100": 100})
    );
    // All candidates are hits: the rows that codes find, with ties at the last place in the order of insertion.
    let codes = &eval(&["--search", "codes", "--json"]).json()[0];
    let at_100 = |line: &serde_json::Value, name: &str| line[name]["100"].as_f64().unwrap();
    let bounds = at_100(codes, "recall_worst")..=at_100(codes, "recall_best");
    assert!(
        bounds.contains(&at_100(fixed, "recall")),
        "{bounds:?} {fixed}"
    );

    let table = eval(&["--search", "auto,exact"]).ok();
    let header = table.lines().next().unwrap();
    assert!(header.contains("\tof exact@10\t"), "{table}");
    for (flags, code, said) in [
        (
            &["--search", "codes", "--candidates", "500"][..],
            2,
            "--search codes takes none",
        ),
        (
            &["--candidates", "99"],
            1,
            "99 candidates for 100 hits; ask for 100 to 1000000",
        ),
        (
            &["--search", "codes", "--model", "exact"],
            1,
            "none of the requested models has codes",
        ),
        (
            &["--search", "codes,fast"],
            2,
            "it is one of auto, codes, exact",
        ),
    ] {
        let found = eval(flags).failed(code);
        assert!(found.contains(said), "{flags:?}: {found}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_before_measuring() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    database(dir);
    let with = |pairs: &str, page: &str| {
        let queries = ["--queries", "q.npy", "--html", page];
        run(
            dir,
            &[&["eval", "x.db", "--pairs", pairs], &queries[..]].concat(),
        )
    };
    // The pairs are missing too, but the page is checked first.
    let said = with("none.tsv", "no/such/page.html").failed(1);
    assert!(
        said.contains("no/such/page.html") && said.contains("No such file"),
        "{said}"
    );
    let ran = with("pairs.tsv", "x.db");
    assert_eq!(ran.out, "", "nothing was measured");
    assert!(ran.failed(1).contains("x.db: Is a directory"));
    // A failing run leaves no empty page, and does not lose an earlier page.
    with("none.tsv", "new.html").failed(1);
    assert!(!dir.join("new.html").exists());
    std::fs::write(dir.join("old.html"), "before".repeat(100_000)).unwrap();
    with("none.tsv", "old.html").failed(1);
    assert_eq!(
        std::fs::metadata(dir.join("old.html")).unwrap().len(),
        600_000
    );
    with("pairs.tsv", "old.html").ok();
    let page = std::fs::read_to_string(dir.join("old.html")).unwrap();
    assert!(page.ends_with("</html>\n") && !page.contains("before"));
}

/// Finds a Chromium: `MOPQDB_CHROMIUM`, or one on PATH. Prints a message if there is none.
fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("MOPQDB_CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome-headless-shell",
        "chromium-headless-shell",
    ];
    let found = named
        .into_iter()
        .chain(std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium to look at the page with (MOPQDB_CHROMIUM names one)");
    }
    found
}

/// `mopqdb-train` has the same rule and the same messages; see trainer/tests.
#[test]
fn pairs_without_a_row_are_an_error_or_left_out_and_counted() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 300, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let write = |name: &str, pairs: &str| std::fs::write(dir.join(name), pairs).unwrap();
    // The same queries have other answers, or none.
    write("some.tsv", "0\t0\n1\tgone\n0\tgone\n2\t2\n3\tgone too\n");
    write("none.tsv", "0\tgone too\n1\tgone\n");
    let common = ["--queries", "x.npy"];
    let eval = |pairs: &str, more: &[&str]| {
        let command = ["eval", "x.db", "--json", "--pairs", pairs];
        run(dir, &[&command[..], &common, more].concat())
    };
    let train = |pairs: &str, more: &[&str]| {
        let command = [
            "train",
            "x.db",
            "--method",
            "pq",
            "--codewords",
            "16",
            "--valid",
            pairs,
        ];
        run(dir, &[&command[..], &common, more].concat())
    };
    let what = "mopqdb: some.tsv:2: no row has the key \"gone\" (3 of 5 lines); ";
    let refused = format!("{what}insert it first, or leave such lines out with --skip-missing\n");
    assert_eq!(eval("some.tsv", &[]).failed(1), refused);
    assert_eq!(train("some.tsv", &[]).failed(1), refused);
    assert_eq!(run(dir, &["models", "x.db", "--json"]).json().len(), 1);
    let told = format!("{what}such lines are left out\n");
    let trained = train("some.tsv", &["--skip-missing"]);
    assert!(trained.err.starts_with(&told), "{}", trained.err);
    trained.ok();
    let measured = eval("some.tsv", &["--skip-missing"]);
    assert_eq!(measured.err, told);
    let measured = measured.json().remove(0);
    assert_eq!(
        (&measured["queries"], &measured["missing_answers"]),
        (&2.into(), &2.into()),
        "{measured}"
    );
    assert_eq!(measured["recall"]["10"].as_f64(), Some(1.0));
    for more in [&[][..], &["--skip-missing"]] {
        let none =
            "mopqdb: none.tsv:1: no row has the key \"gone too\" (2 of 2 lines); insert it first\n";
        assert_eq!(eval("none.tsv", more).failed(1), none);
        assert_eq!(train("none.tsv", more).failed(1), none);
    }
    // Keys used as texts.
    let texts = run(dir, &["eval", "x.db", "--pairs", "none.tsv"]).failed(1);
    assert!(texts.contains("give --key-ids"), "{texts}");
}
