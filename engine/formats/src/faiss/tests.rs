//! Checks the bytes, field by field. The tests of the program's `export` check that Faiss reads them and gives the same
//! results.

use super::*;

/// The expected bytes, in the order of the file.
#[derive(Default)]
struct Expected(Vec<u8>);

impl Expected {
    fn text(mut self, code: &str) -> Self {
        self.0.extend(code.bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn floats(mut self, values: &[f32]) -> Self {
        self.0
            .extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    fn header(self, code: &str, dim: i32, rows: u64, metric: i32) -> Self {
        let unused = 1 << 20;
        let start = self.text(code).i32(dim).u64(rows).u64(unused).u64(unused);
        start.bytes(&[1]).i32(metric)
    }
}

fn written(index: &Index<'_>, fill: impl FnOnce(&mut IndexWriter) -> Result<()>) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.faiss");
    let mut writer = IndexWriter::create(&path, index).unwrap();
    fill(&mut writer).unwrap();
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn vectors_follow_their_header() {
    let index = Index {
        rows: 2,
        dim: 3,
        distance: Distance::L2,
        transforms: &[],
        codebooks: None,
    };
    let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let bytes = written(&index, |writer| {
        writer.write_vectors(&values[..3])?;
        writer.write_vectors(&values[3..])
    });
    let expected = Expected::default()
        .header("IxF2", 3, 2, 1)
        .u64(6)
        .floats(&values);
    assert_eq!(bytes, expected.0);
}

#[test]
fn a_chain_contains_the_width_after_each_step() {
    let index = Index {
        rows: 1,
        dim: 3,
        distance: Distance::InnerProduct,
        transforms: &[
            Transform::Normalise,
            Transform::Linear {
                weight: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                bias: &[7.0, 8.0],
                outputs: 2,
            },
            Transform::Rotation(&[1.0, 2.0, 3.0, 4.0]),
        ],
        codebooks: Some(Codebooks {
            subspaces: 1,
            codewords: 17,
            values: &[0.5; 17 * 2],
        }),
    };
    let bytes = written(&index, |writer| writer.write_codes(&[16]));
    let expected = Expected::default()
        .header("IxPT", 3, 1, 0)
        .i32(3)
        .text("VNrm")
        .floats(&[2.0])
        .i32(3)
        .i32(3)
        .bytes(&[1])
        .text("LTra")
        .bytes(&[1])
        .u64(6)
        .floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .u64(2)
        .floats(&[7.0, 8.0])
        .i32(3)
        .i32(2)
        .bytes(&[1])
        .text("LTra")
        .bytes(&[0])
        .u64(4)
        .floats(&[1.0, 3.0, 2.0, 4.0])
        .u64(0)
        .i32(2)
        .i32(2)
        .bytes(&[1])
        .header("IxPq", 2, 1, 0)
        .u64(2)
        .u64(1)
        .u64(8)
        .u64(512)
        .floats(&[0.5; 34])
        .floats(&[0.0; 512 - 34])
        .u64(1)
        .bytes(&[16])
        .i32(0)
        .bytes(&[0])
        .i32(9);
    assert_eq!(bytes, expected.0);
}

#[test]
fn codes_of_four_bits_are_packed_by_row() {
    let index = Index {
        rows: 2,
        dim: 3,
        distance: Distance::InnerProduct,
        transforms: &[],
        codebooks: Some(Codebooks {
            subspaces: 3,
            codewords: 16,
            values: &[0.25; 48],
        }),
    };
    let bytes = written(&index, |writer| writer.write_codes(&[1, 2, 3, 4, 5, 6]));
    let tail = Expected::default()
        .u64(4)
        .bytes(&[0x21, 0x03, 0x54, 0x06])
        .i32(0)
        .bytes(&[0])
        .i32(13);
    assert!(bytes.ends_with(&tail.0), "{bytes:?}");
}

#[test]
#[should_panic(expected = "the number of rows differs from the announced one")]
fn an_index_with_missing_rows_cannot_be_finished() {
    let index = Index {
        rows: 2,
        dim: 1,
        distance: Distance::L2,
        transforms: &[],
        codebooks: None,
    };
    written(&index, |writer| writer.write_vectors(&[1.0]));
}
