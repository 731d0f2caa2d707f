//! Sources that may be compressed with gzip or zstd. The first bytes decide, not the name, because standard input has
//! no name.

use super::Format;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};

/// The number of compressed bytes read at once.
const CHUNK: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Gzip,
    Zstd,
}

impl Codec {
    const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Returns `true` if these may be the first compressed bytes. From four bytes on the answer is definite.
    fn may_begin(self, start: &[u8]) -> bool {
        let begins = |magic: &[u8]| start.iter().zip(magic).all(|(byte, magic)| byte == magic);
        match (self, start) {
            // Deflate is gzip's only method.
            (Self::Gzip, _) => begins(&[0x1f, 0x8b, 8]),
            // A skippable frame, with which files of `pzstd` begin.
            (Self::Zstd, [0x50..=0x5f, rest @ ..]) => rest
                .iter()
                .zip(b"\x2a\x4d\x18")
                .all(|(byte, magic)| byte == magic),
            (Self::Zstd, _) => begins(b"\x28\xb5\x2f\xfd"),
        }
    }

    fn decoder(self, source: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let source = BufReader::with_capacity(CHUNK, source);
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(source)?),
        })
    }

    /// Explains errors of the decoder. Errors of the operating system stay unchanged.
    fn explain(self, error: io::Error) -> io::Error {
        let name = self.name();
        let what = match error.kind() {
            _ if error.raw_os_error().is_some() => return error,
            ErrorKind::Interrupted => return error,
            ErrorKind::UnexpectedEof => {
                format!("the {name} data ends too early; is the copy complete?")
            }
            _ => format!("the {name} data can't be decompressed: {error}"),
        };
        io::Error::new(ErrorKind::InvalidData, what)
    }
}

/// Bytes that are decompressed if the first ones show that they are compressed.
///
/// Nothing is read before the first call, so that opening does not wait for a pipe. The memory is that of a window: 128
/// MiB for the widest that zstd makes by default.
pub(super) struct Decompressed {
    bytes: Box<dyn Read + Send>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unread(Format),
    Plain,
    Compressed(Codec),
}

impl Decompressed {
    /// Wraps the bytes of a file of this format.
    pub(super) fn new(bytes: Box<dyn Read + Send>, format: Format) -> Self {
        Self {
            bytes,
            state: State::Unread(format),
        }
    }

    /// Returns `true` if the bytes are compressed. Reads the first bytes if necessary.
    pub(super) fn is_compressed(&mut self) -> io::Result<bool> {
        if let State::Unread(format) = self.state {
            self.begin(format)?;
        }
        Ok(self.state != State::Plain)
    }

    fn begin(&mut self, format: Format) -> io::Result<()> {
        let start = read_start(&mut self.bytes)?;
        let codec = codec_of(&start, format);
        let rest = std::mem::replace(&mut self.bytes, Box::new(io::empty()));
        let whole = Box::new(Cursor::new(start).chain(rest));
        (self.bytes, self.state) = match codec {
            None => (whole as Box<dyn Read + Send>, State::Plain),
            Some(codec) => (codec.decoder(whole)?, State::Compressed(codec)),
        };
        Ok(())
    }
}

impl Read for Decompressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_compressed()?;
        let read = self.bytes.read(buffer);
        match self.state {
            State::Compressed(codec) => read.map_err(|error| codec.explain(error)),
            _ => read,
        }
    }
}

/// The number of bytes that are needed to decide: the magic number and, in an .fbin file, the dimensions.
const START: usize = 8;

/// Reads no more bytes than needed: a slow pipe may have only one short line yet.
fn read_start(bytes: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(START);
    while start.len() < START && Codec::ALL.iter().any(|codec| codec.may_begin(&start)) {
        let mut byte = [0];
        match bytes.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => start.extend(byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(start)
}

fn codec_of(start: &[u8], format: Format) -> Option<Codec> {
    let codec = Codec::ALL
        .into_iter()
        .find(|codec| start.len() >= 4 && codec.may_begin(start))?;
    // An .fbin file of 559,903 rows begins like gzip. Then follows the width of its vectors; in gzip that is a time: 0,
    // or many seconds after 1970.
    let after = start
        .get(4..8)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let is_width =
        after.is_some_and(|width| (1..=mopqdb_formats::vectors::MAX_DIM as u32).contains(&width));
    (format != Format::Fbin || codec != Codec::Gzip || !is_width).then_some(codec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns zstd with a checksum, as the program `zstd` writes it.
    fn zst(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8], format: Format) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Decompressed::new(Box::new(Cursor::new(bytes.to_vec())), format).read_to_end(&mut all)?;
        Ok(all)
    }

    /// Returns two pieces, one after the other, like two files joined with `cat`.
    fn twice(compress: fn(&[u8]) -> Vec<u8>) -> (Vec<u8>, usize) {
        let first = compress(b"one, ");
        (
            [&first[..], &compress(b"and two, and two")].concat(),
            first.len(),
        )
    }

    #[test]
    fn all_pieces_are_read_and_plain_bytes_are_unchanged() {
        for compress in [gzip, zst] {
            let (bytes, _) = twice(compress);
            assert_eq!(
                read(&bytes, Format::Jsonl).unwrap(),
                b"one, and two, and two"
            );
            assert_eq!(read(&compress(b""), Format::Jsonl).unwrap(), b"");
        }
        let skipped = [&b"\x50\x2a\x4d\x18\x02\0\0\0ab"[..], &zst(b"x")].concat();
        assert_eq!(read(&skipped, Format::Npy).unwrap(), b"x");
        for plain in [
            &b""[..],
            b"\x1f",
            b"\x1f\x8b",
            b"\x28\xb5\x2f",
            b"\x28\xb5\x2f\xfe",
            b"P",
            b"P*M.",
            b"(a",
            b"\x93NUMPY",
        ] {
            assert_eq!(read(plain, Format::Txt).unwrap(), plain);
        }
    }

    #[test]
    fn truncated_or_changed_bytes_are_an_error() {
        for compress in [gzip, zst] {
            let (bytes, first) = twice(compress);
            for cut in (4..bytes.len()).filter(|cut| *cut != first) {
                let error = read(&bytes[..cut], Format::Jsonl).unwrap_err().to_string();
                assert!(error.contains("data ends too early"), "{cut}: {error}");
            }
            let (mut noticed, mut bytes) = (0, compress(&b"a text that is long enough".repeat(9)));
            for at in 4..bytes.len() {
                bytes[at] ^= 0x10;
                noticed += usize::from(read(&bytes, Format::Jsonl).is_err());
                bytes[at] ^= 0x10;
            }
            // gzip has no checksum for its time and system fields.
            assert!(noticed > bytes.len() / 2, "{noticed} of {}", bytes.len());
        }
        let left_over = [&gzip(b"x")[..], b"not gzip at all"].concat();
        let error = read(&left_over, Format::Jsonl).unwrap_err().to_string();
        assert!(error.contains("can't be decompressed"), "{error}");
    }

    #[test]
    fn fbin_whose_row_count_equals_the_gzip_magic_is_recognised_by_its_width() {
        let mut fbin = 559_903_u32.to_le_bytes().to_vec();
        fbin.extend(2_u32.to_le_bytes());
        fbin.extend([0; 8]);
        assert_eq!(fbin[..3], [0x1f, 0x8b, 8]);
        assert_eq!(read(&fbin, Format::Fbin).unwrap(), fbin);
        assert!(read(&fbin, Format::Txt).is_err());
        assert_eq!(read(&gzip(&fbin), Format::Fbin).unwrap(), fbin);
        assert_eq!(read(&zst(&fbin), Format::Fbin).unwrap(), fbin);
    }

    /// A reader that gives its bytes one by one, and panics if more are requested.
    struct Slow(&'static [u8]);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (first, rest) = self
                .0
                .split_first()
                .expect("more bytes were requested than necessary");
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn a_slow_pipe_is_read_only_as_far_as_necessary() {
        let mut bytes = Decompressed::new(Box::new(Slow(b"{")), Format::Jsonl);
        assert!(!bytes.is_compressed().unwrap());
        let mut bytes = Decompressed::new(Box::new(Slow(b"\x1f\n")), Format::Txt);
        assert!(!bytes.is_compressed().unwrap());
    }
}
