//! Correcting flipped bits in the files of a segment.

use super::rows;
use crate::disk::files::{Files, plain, temporary};
use crate::disk::mmap::PrivateCopy;
use crate::format::{Corrector, Kind};
use crate::{Error, Result};
use std::fs::File;
use std::path::Path;

/// Writes a copy of a damaged file to `to`, with single flipped bits corrected. Returns the number of corrected places;
/// if it is 0, nothing is written. The copy may still be damaged elsewhere.
pub fn correct(files: &dyn Files, path: &Path, kind: Kind, to: &Path) -> Result<u32> {
    plain(path).map_err(Error::io("opening", path))?;
    let file = File::open(path).map_err(Error::io("opening", path))?;
    let mut bytes = PrivateCopy::of(&file).map_err(Error::io("opening", path))?;
    let mut corrector = Corrector::default();
    let Some(len) = corrector.frame(&mut bytes, kind) else {
        return Ok(0);
    };
    corrector.chunks(&mut bytes[..len], kind);
    if kind == Kind::Rows {
        rows::correct_blocks(&mut bytes[..len], &mut corrector);
    }
    if corrector.corrected == 0 {
        return Ok(0);
    }
    let tmp = temporary(to);
    let write = || {
        match files.remove(&tmp) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut out = files.create(&tmp)?;
        for piece in bytes[..len].chunks(1 << 20) {
            out.write_all(piece)?;
        }
        out.read_only()?;
        out.sync()?;
        drop(out);
        files.rename(&tmp, to)
    };
    write().map_err(Error::io("writing", to))?;
    Ok(corrector.corrected)
}
