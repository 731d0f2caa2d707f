//! Reads rows ahead on a separate thread, so that reading overlaps with inserting, and a slow pipe is noticed.

use crate::rows::{self, BadRow, Fields, Input, KeyFile, Places, ReadRow, RowReader};
use anyhow::{Error, Result, anyhow};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The next item of the input.
pub(super) enum Item {
    /// A row, and the origin of its key.
    Row(ReadRow, Origin),
    /// A row that can't be inserted.
    Bad(BadRow),
    /// An error after which nothing more can be read.
    Failed(Error),
    /// Nothing arrived for a while.
    Waiting,
    /// The end of the input.
    End,
}

/// The origin of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// The index in [`Feed::places`].
    pub(super) source: usize,
    /// The number of the line or row there.
    pub(super) number: u64,
    /// Whether the key is a row number that this program assigned.
    pub(super) numbered: bool,
}

/// The rows read ahead.
pub(super) struct Feed {
    items: Receiver<Item>,
    /// The origins of keys: the files of rows, or the file of `--keys`.
    places: Vec<Places>,
    rows_total: Option<u64>,
}

/// The maximum number of rows read ahead.
const AHEAD: usize = 4096;

impl Feed {
    /// Opens every source before the first row is read: so a mistyped name is reported before any row is
    /// inserted.
    pub(super) fn start(
        inputs: &[Input],
        fields: &Fields,
        mut keys: Option<KeyFile>,
    ) -> Result<Self> {
        let several = inputs.len() > 1;
        let readers: Vec<_> = inputs
            .iter()
            .map(|input| rows::open(input, several, fields))
            .collect::<Result<_>>()?;
        let rows_total = readers.iter().map(|reader| reader.rows_total()).sum();
        let places = match &keys {
            Some(keys) => vec![keys.places()],
            None => readers.iter().map(|reader| reader.places()).collect(),
        };
        let (sender, items) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            for (source, mut reader) in readers.into_iter().enumerate() {
                if !forward(&mut *reader, source, keys.as_mut(), &sender) {
                    return;
                }
            }
            let end = keys.map_or(Ok(()), |mut keys| keys.expect_end());
            let _ = sender.send(end.map_or_else(Item::Failed, |()| Item::End));
        });
        Ok(Self {
            items,
            places,
            rows_total,
        })
    }

    /// Returns the next item; [`Item::Waiting`] if none arrived within `patience`.
    pub(super) fn next(&mut self, patience: Duration) -> Item {
        match self.items.recv_timeout(patience) {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout) => Item::Waiting,
            // A missing end item means that the reader has panicked.
            Err(RecvTimeoutError::Disconnected) => {
                Item::Failed(anyhow!("reading stopped before the end"))
            }
        }
    }

    /// Returns the origins of keys.
    pub(super) fn places(&self) -> &[Places] {
        &self.places
    }

    /// Returns the number of rows, if all files state it.
    pub(super) fn rows_total(&self) -> Option<u64> {
        self.rows_total
    }
}

/// Sends a reader's rows. Returns `true` if the next reader should follow.
fn forward(
    reader: &mut dyn RowReader,
    source: usize,
    mut keys: Option<&mut KeyFile>,
    sender: &SyncSender<Item>,
) -> bool {
    let numbered = reader.numbered();
    loop {
        let item = match reader.next_row() {
            Ok(None) => return true,
            Err(error) => Item::Failed(error),
            Ok(Some(Err(bad))) => match keys.as_deref_mut().map(|keys| keys.next_key(&bad.place)) {
                // The bad row's key is skipped, so that the next row gets its own.
                None | Some(Ok(_)) => Item::Bad(bad),
                Some(Err(error)) => Item::Failed(error),
            },
            Ok(Some(Ok(row))) => match keys.as_deref_mut() {
                None => {
                    let number = row.number;
                    Item::Row(
                        row,
                        Origin {
                            source,
                            number,
                            numbered,
                        },
                    )
                }
                Some(keys) => match keys.next_key(&row.place) {
                    Ok(Ok(key)) => {
                        let mut row = row;
                        let number = keys.number();
                        row.row.key = key;
                        row.place = format!("{} ({})", keys.places().at(number), row.place);
                        Item::Row(
                            row,
                            Origin {
                                source,
                                number,
                                numbered: false,
                            },
                        )
                    }
                    Ok(Err(bad)) => Item::Bad(bad),
                    Err(error) => Item::Failed(error),
                },
            },
        };
        let last = matches!(item, Item::Failed(_));
        if sender.send(item).is_err() || last {
            return false;
        }
    }
}
