//! The rows that a query may return: see [`crate::snapshot`], whose masks everything that takes a filter uses.

pub(crate) use crate::snapshot::{Masks, masks};
