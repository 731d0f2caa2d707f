//! What tests of the whole program share.

pub mod doc_comments;
