//! Inputs that fuzzing found stay fixed: each target runs its corpus, and seeded mutations of it.

use mopqdb_tests::hostile::TARGETS;
use std::path::{Path, PathBuf};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/corpus/{target}"))
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = corpus(target);
    let entries = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}: each target has a corpus", dir.display()));
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn every_target_survives_its_corpus_and_mutations_of_it() {
    let seed = 0x5eed_1234_u64;
    println!("seed {seed}");
    let mut state = seed;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % n.max(1)
    };
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no corpus");
        // A run on a database or an index is slow; runs on bytes are fast.
        let mutations = match name {
            "operations" => 4,
            "words" => 20,
            _ => 200,
        };
        for (path, bytes) in &seeds {
            println!("{}", path.display());
            target(bytes);
            for _ in 0..mutations {
                let mut other = bytes.clone();
                for _ in 0..1 + random(4) {
                    let at = random(other.len());
                    match random(5) {
                        0 if !other.is_empty() => other[at] ^= 1 << random(8),
                        1 if !other.is_empty() => other[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                        2 => other.truncate(at),
                        3 => other.insert(at.min(other.len()), random(256) as u8),
                        _ => {
                            let end = (at + random(16)).min(other.len());
                            let piece = other[at.min(end)..end].to_vec();
                            other.extend(piece);
                        }
                    }
                }
                target(&other);
            }
        }
    }
}

#[test]
#[ignore = "writes the seeds of the corpora; by hand"]
fn write_the_seeds() {
    use mopqdb::bundle::BundleWriter;
    use mopqdb::quantizer::{TrainPq, train_pq};
    use mopqdb::testing::format::{Container, Kind, Section};
    use mopqdb::{CreateOptions, Database, Metric, Options, Row};
    use mopqdb_formats::vectors::VectorWriter;
    let put = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(corpus(target)).unwrap();
        std::fs::write(corpus(target).join(name), bytes).unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let values = |n: usize| [(n % 7) as f32 - 3.0, (n % 5) as f32, 0.5, -(n as f32)];
    let sample: Vec<f32> = (0..40).flat_map(values).collect();
    let options = TrainPq::default().subspaces(2).codewords(4);
    let quantizer = train_pq(&sample, 4, Metric::Ip, &options)
        .unwrap()
        .quantizer;
    let bundle = BundleWriter::new(dir.path().join("bundle"))
        .metric(Metric::Ip)
        .vectors(4)
        .method("pq")
        .quantizer(&quantizer)
        .finish()
        .unwrap();
    let read = |path: &Path| std::fs::read(path).unwrap();
    let manifest = read(&bundle.dir().join("manifest.json"));
    let tensors = read(&bundle.dir().join("tensors.safetensors"));
    put(
        "bundle",
        "pq",
        &[&manifest[..], b"\n---\n", &tensors].concat(),
    );
    let new = CreateOptions::bundle(bundle.dir());
    let db = Database::create(&path, &new, Options::default()).unwrap();
    let rows: Vec<Row> = (0..20)
        .map(|n| Row::vector(format!("key {n}"), values(n)))
        .collect();
    db.insert(&rows).unwrap();
    db.seal().unwrap();
    db.delete(&["key 3", "key 4"]).unwrap();
    db.seal().unwrap();
    db.insert(&rows[..3]).unwrap();
    db.insert(&[Row::vector("other", [9.0; 4])]).unwrap();
    db.delete(&["key 9"]).unwrap();
    db.close().unwrap();
    for folder in ["", "segments", "logs"] {
        for entry in std::fs::read_dir(path.join(folder)).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let target = match file.extension().and_then(|e| e.to_str()) {
                Some("rows" | "vecs" | "codes") => "segment",
                Some("dels") => "deletions",
                Some("log") => "log",
                _ if name.starts_with("MANIFEST-") => "record",
                _ => continue,
            };
            let bytes = read(&file);
            put(target, &name, &bytes);
            // Behind the headers, for the targets that add their own.
            match target {
                "record" => put(target, &format!("{name}.body"), &bytes[64..]),
                "log" => put(target, &format!("{name}.batch"), &bytes[96..]),
                _ => {}
            }
        }
    }
    for (kind, extension) in [(0u8, "npy"), (1, "fvecs"), (2, "fbin")] {
        let file = dir.path().join(format!("x.{extension}"));
        let mut writer = VectorWriter::create(&file, 4).unwrap();
        writer.write(&sample[..20]).unwrap();
        writer.finish().unwrap();
        put("vectors", extension, &[&[kind][..], &read(&file)].concat());
    }
    for (kind, name, content) in [
        (
            0u8,
            "jsonl",
            &b"\xef\xbb\xbf{\"key\": \"a\", \"text\": \"one \\u00e9\\ud83d\\ude00\"}\r\n\n{\"key\": 7, \"vector\": [1, -2.5e3]}\n{\"key\": -7}\n{\"key\": \"b\", \"text\": \"x\", \"vector\": [1e39]}"[..],
        ),
        (1, "tsv", b"a\tone\ttwo\nb\t\n\tc\nno tab\n\xff\tx\n"),
        (2, "txt", b"one\n\ntwo\r\nthe last line without an end"),
        (3, "pairs", b"query\tanswer\nquery\tanother\n\nother\tanswer\n"),
        (4, "groups", b"1\n-1\nkey\t7\n"),
        (5, "keys", b"a\nb\n\nc"),
    ] {
        put("lines", name, &[&[kind], content].concat());
    }
    for kind in 0..3u8 {
        let mut state = u64::from(kind) + 1;
        let chosen: Vec<u8> = (0..3000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8 % 224
            })
            .collect();
        let name = ["codes", "vectors", "quantizers"][usize::from(kind)];
        put("kernels", name, &[&[kind], &chosen[..]].concat());
    }
    for (name, text) in [
        (
            "all",
            "int >= -20 AND string IN ('de','en') AND strings HAS 'x' AND string LIKE 'd%' AND bool IS NOT TRUE",
        ),
        (
            "nested",
            "NOT ((float BETWEEN 1.5 AND 2e3 OR timestamp < '2024-05-01T12:00:00+02:00') IS NULL AND key != 'a')",
        ),
        (
            "escapes",
            "\"string\" NOT LIKE '50!%''' ESCAPE '!' OR int NOT IN (1, NULL, -9223372036854775808)",
        ),
        ("functions", "lower(string) = 'x' -- and more"),
    ] {
        put("filter", name, text.as_bytes());
    }
    let file = dir.path().join("0000000001.cols");
    let logged = mopqdb::testing::write_columns_file(&file).unwrap();
    let bytes = read(&file);
    put("columns", "0000000001.cols", &bytes);
    put("columns", "logged", &[&[100], &logged[..]].concat());
    let container = Container::open(&bytes[..], Kind::Columns).unwrap();
    let section = |section| {
        let part = container.touched(section).unwrap();
        container.whole(&part).unwrap()
    };
    let meta = section(Section::Meta);
    let len = (meta.len() as u16).to_le_bytes();
    let sections = [&len[..], meta, section(Section::Columns)].concat();
    put("columns", "sections", &sections);
    let mixed: Vec<u8> = (0..128u32).map(|n| (n * 37 + n / 3) as u8).collect();
    put("operations", "mixed", &mixed);
    put(
        "operations",
        "seal-delete-reopen",
        &[0, 1, 1, 2, 5, 0, 4, 1, 7, 0, 0, 1, 6, 0, 7, 0],
    );
}
