//! Files are read as they were written; malformed files are refused with a message, in bounded memory.

use super::*;
use std::io::Cursor;

fn npy(version: u8, dictionary: &str, values: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
        _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
    }
    bytes.extend(dictionary.as_bytes());
    bytes.extend(values);
    bytes
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn read(bytes: &[u8], format: VectorFormat) -> Result<(usize, Vec<f32>)> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let mut reader = VectorReader::from_reader("a file", source, format)?;
    let mut out = Vec::new();
    while reader.read_rows(3, &mut out)? > 0 {}
    Ok((reader.dim(), out))
}

fn refusal(bytes: &[u8], format: VectorFormat) -> String {
    read(bytes, format)
        .expect_err("it must be refused")
        .to_string()
}

#[test]
fn every_format_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..7 * 5).map(|n| n as f32 * 0.25 - 3.0).collect();
    for name in ["a.npy", "a.fvecs", "a.fbin"] {
        let path = dir.path().join(name);
        let mut writer = VectorWriter::create(&path, 5).unwrap();
        writer.write(&values[..10]).unwrap();
        writer.write(&values[10..]).unwrap();
        assert_eq!(writer.finish().unwrap(), 7, "{name}");
        assert_eq!(read_all(&path).unwrap(), (5, values.clone()), "{name}");

        let mut reader = VectorReader::open(&path).unwrap();
        let mut some = Vec::new();
        assert_eq!(reader.read_rows(4, &mut some).unwrap(), 4);
        assert_eq!(reader.read_rows(4, &mut some).unwrap(), 3);
        assert_eq!(reader.read_rows(4, &mut some).unwrap(), 0);
        assert_eq!(some, values);
    }
}

#[test]
fn an_empty_file_of_vectors_is_read_as_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.npy", "a.fbin"] {
        let path = dir.path().join(name);
        VectorWriter::create(&path, 3).unwrap().finish().unwrap();
        assert_eq!(read_all(&path).unwrap(), (3, vec![]), "{name}");
    }
}

#[test]
fn all_numpy_types_versions_and_quotes_are_read() {
    let wanted = (2, vec![1.0, -2.5, 0.5, 4.0]);
    let values = wanted.1.clone();
    let f8: Vec<u8> = values
        .iter()
        .flat_map(|&v| f64::from(v).to_le_bytes())
        .collect();
    let f2: Vec<u8> = values
        .iter()
        .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
        .collect();
    for version in 1..=3 {
        for (descr, bytes) in [("<f4", &f32_bytes(&values)), ("<f8", &f8), ("<f2", &f2)] {
            let dictionary =
                format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2, 2), }}   \n");
            let file = npy(version, &dictionary, bytes);
            assert_eq!(
                read(&file, VectorFormat::Npy).unwrap(),
                wanted,
                "{descr} {version}"
            );
        }
    }
    let other = npy(
        1,
        "{\"shape\":(2L,2L),\"fortran_order\":False,\"descr\":\"<f4\"}",
        &f32_bytes(&values),
    );
    assert_eq!(read(&other, VectorFormat::Npy).unwrap(), wanted);
}

#[test]
fn a_one_dimensional_array_is_one_vector() {
    let file = npy(
        1,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
        &f32_bytes(&[1.0, 2.0, 3.0]),
    );
    assert_eq!(
        read(&file, VectorFormat::Npy).unwrap(),
        (3, vec![1.0, 2.0, 3.0])
    );
}

#[test]
fn unsupported_numpy_files_are_refused_with_a_remedy() {
    let values = f32_bytes(&[0.0; 4]);
    for (dictionary, said) in [
        (
            "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2)}",
            "astype('<f4')",
        ),
        (
            "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2)}",
            "\"<i8\"",
        ),
        (
            "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}",
            "ascontiguousarray",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1)}",
            "3 dimensions",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "0 dimensions",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 0)}",
            "vectors of 0 values",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 99999999)}",
            "99999999",
        ),
        (
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,)}",
            "named fields",
        ),
        ("{'descr': '<f4', 'fortran_order': False}", "\"shape\""),
        (
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2, 2)}",
            "neither True nor False",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 2)}",
            "list of lengths",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)",
            "ends before",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)} x",
            "continues after its dictionary",
        ),
        ("{'descr': '<f4", "unterminated"),
        ("", "ends before"),
    ] {
        let message = refusal(&npy(1, dictionary, &values), VectorFormat::Npy);
        assert!(message.contains(said), "{dictionary} gave: {message}");
        assert!(message.starts_with("a file: "), "{message}");
    }
    assert!(refusal(b"PK\x03\x04 zipped..", VectorFormat::Npy).contains("\\x93NUMPY"));
    assert!(refusal(&npy(9, "", b""), VectorFormat::Npy).contains("version 9"));
    assert!(
        refusal(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", VectorFormat::Npy)
            .contains("header of 2147483647 bytes")
    );
}

#[test]
fn a_file_that_is_too_short_or_too_long_is_refused() {
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}";
    let short = refusal(
        &npy(1, dictionary, &f32_bytes(&[0.0; 3])),
        VectorFormat::Npy,
    );
    assert!(short.contains("ends inside row 1 of 2"), "{short}");
    let long = refusal(
        &npy(1, dictionary, &f32_bytes(&[0.0; 5])),
        VectorFormat::Npy,
    );
    assert!(long.contains("continues after the 2 rows"), "{long}");

    let mut fvecs = Vec::new();
    for width in [2_u32, 3] {
        fvecs.extend(width.to_le_bytes());
        fvecs.extend(f32_bytes(&[1.0, 2.0]));
    }
    let mixed = refusal(&fvecs, VectorFormat::Fvecs);
    assert!(
        mixed.contains("row 1 has 3 values, but row 0 has 2"),
        "{mixed}"
    );
    let cut = refusal(&fvecs[..9], VectorFormat::Fvecs);
    assert!(cut.contains("ends inside row 0"), "{cut}");
}

#[test]
fn a_wrong_file_length_is_refused_before_any_row_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.fbin");
    let mut bytes = u32::MAX.to_le_bytes().to_vec();
    bytes.extend(4_u32.to_le_bytes());
    bytes.extend([0; 16]);
    std::fs::write(&path, &bytes).unwrap();
    let message = VectorReader::open(&path).unwrap_err().to_string();
    assert!(
        message.contains("should have 68719476728 bytes"),
        "{message}"
    );

    let path = dir.path().join("a.fvecs");
    std::fs::write(&path, [2, 0, 0, 0, 1, 1, 1]).unwrap();
    let message = VectorReader::open(&path).unwrap_err().to_string();
    assert!(
        message.contains("not complete rows of 12 bytes"),
        "{message}"
    );
}

#[test]
fn a_huge_row_count_from_a_pipe_allocates_at_most_one_chunk() {
    let dictionary =
        "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 65536)}";
    let source = Box::new(Cursor::new(npy(1, dictionary, &[0; 100])));
    let mut reader = VectorReader::from_reader("a pipe", source, VectorFormat::Npy).unwrap();
    let mut out = Vec::new();
    let message = reader
        .read_rows(usize::MAX, &mut out)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("ends inside row 0 of 18446744073709551615"),
        "{message}"
    );
    assert!(out.capacity() <= 1 << 20);
}

#[test]
fn every_cut_and_flipped_bit_gives_rows_or_an_error_never_a_panic() {
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    let mut fbin = 2_u32.to_le_bytes().to_vec();
    fbin.extend(2_u32.to_le_bytes());
    fbin.extend(f32_bytes(&[1.0; 4]));
    let mut fvecs = Vec::new();
    for _ in 0..2 {
        fvecs.extend(2_u32.to_le_bytes());
        fvecs.extend(f32_bytes(&[1.0; 2]));
    }
    for (format, whole) in [
        (VectorFormat::Npy, npy(1, dictionary, &f32_bytes(&[1.0; 4]))),
        (VectorFormat::Fbin, fbin),
        (VectorFormat::Fvecs, fvecs),
    ] {
        assert!(read(&whole, format).is_ok());
        for cut in 0..whole.len() {
            // An .fvecs file cut between rows is a valid shorter file: nothing in it shows the difference.
            let clean = format == VectorFormat::Fvecs && cut > 0 && cut % 12 == 0;
            assert_eq!(
                read(&whole[..cut], format).is_ok(),
                clean,
                "{format:?} cut at {cut}"
            );
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&flipped, format);
        }
    }
}

#[test]
fn arrays_of_bytes_and_of_three_dimensions_have_numpy_headers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("codebooks.npy");
    let mut writer = NpyWriter::create(&path, Element::U8, &[2, 3]).unwrap();
    writer.write_u8(&[7; 24]).unwrap();
    assert_eq!(writer.finish().unwrap(), 4);
    let bytes = std::fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes[..192]);
    assert!(
        text.contains("'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 3,), }"),
        "{text}"
    );
    assert_eq!(bytes.len(), 192 + 24);
}
