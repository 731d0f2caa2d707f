//! Text between markers: `<!-- begin: NAME (how it is made) -->` to `<!-- end: NAME -->`. Pages are written by people,
//! figures by commands. Where sections come and go, `<!-- more: KIND -->` says where a new one is put.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// The page with the text between the markers `name` replaced. What is outside them is kept to the letter.
pub fn replace(page: &str, name: &str, text: &str) -> Result<String> {
    let (start, end) = span(page, name)?;
    Ok(format!(
        "{}\n{}\n{}",
        &page[..start],
        text.trim_end(),
        &page[end..]
    ))
}

/// Rewrites a file so. Whether it changed.
pub fn rewrite(path: &Path, name: &str, text: &str) -> Result<bool> {
    change(path, |page| replace(page, name, text))
}

fn change(path: &Path, by: impl Fn(&str) -> Result<String>) -> Result<bool> {
    let page = fs::read_to_string(path).with_context(|| format!("{}: reading", path.display()))?;
    let new = by(&page).with_context(|| path.display().to_string())?;
    if new == page {
        return Ok(false);
    }
    fs::write(path, new).with_context(|| format!("{}: writing", path.display()))?;
    Ok(true)
}

/// The page with the section `KIND-name` replaced, or put before `<!-- more: KIND -->` if it has none of that name. Other
/// sections of the kind are kept to the letter: what was not measured again still stands.
pub fn replace_or_add(page: &str, kind: &str, name: &str, text: &str) -> Result<String> {
    let section = format!("{kind}-{name}");
    if page.contains(&format!("<!-- end: {section} -->")) {
        return replace(page, &section, text);
    }
    let more = format!("<!-- more: {kind} -->");
    let at = page
        .find(&more)
        .with_context(|| format!("no marker {more}"))?;
    let text = text.trim_end();
    Ok(format!(
        "{}<!-- begin: {section} -->\n{text}\n<!-- end: {section} -->\n\n{}",
        &page[..at],
        &page[at..]
    ))
}

/// Rewrites a file so.
pub fn rewrite_or_add(path: &Path, kind: &str, name: &str, text: &str) -> Result<bool> {
    change(path, |page| replace_or_add(page, kind, name, text))
}

/// From the end of the begin marker's `-->` to the start of the end marker.
fn span(page: &str, name: &str) -> Result<(usize, usize)> {
    let mut found = None;
    for (at, _) in page.match_indices("<!-- begin: ") {
        let rest = &page[at + "<!-- begin: ".len()..];
        let close = rest
            .find("-->")
            .with_context(|| format!("a begin marker at byte {at} has no -->"))?;
        if rest[..close].split_whitespace().next() == Some(name) {
            if found.is_some() {
                bail!("two markers <!-- begin: {name} -->");
            }
            found = Some(at + "<!-- begin: ".len() + close + "-->".len());
        }
    }
    let start = found.with_context(|| format!("no marker <!-- begin: {name} -->"))?;
    let end = format!("<!-- end: {name} -->");
    let length = page[start..]
        .find(&end)
        .with_context(|| format!("no marker {end} after its begin"))?;
    if page[start..start + length].contains("<!-- begin: ") {
        bail!("another begin marker before {end}");
    }
    Ok((start, start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n<!-- begin: a (make x) -->\nold\n<!-- end: a -->\nkept <!-- begin: ab -->\n<!-- end: ab -->\n";

    #[test]
    fn only_the_text_between_its_markers_is_replaced() {
        let page = replace(PAGE, "a", "| new |\n").unwrap();
        assert_eq!(page, PAGE.replace("old", "| new |"));
        assert_eq!(
            replace(&page, "a", "| new |").unwrap(),
            page,
            "twice is as once"
        );
        assert!(
            replace(PAGE, "ab", "x")
                .unwrap()
                .contains("<!-- begin: ab -->\nx\n<!-- end: ab -->")
        );
    }

    #[test]
    fn a_section_is_replaced_where_it_is_or_put_where_more_go() {
        let page = "top\n<!-- more: search -->\nrest\n";
        let one = replace_or_add(page, "search", "a-1", "first").unwrap();
        let two = replace_or_add(&one, "search", "a", "second").unwrap();
        let expected = "top\n<!-- begin: search-a-1 -->\nfirst\n<!-- end: search-a-1 -->\n\n\
                        <!-- begin: search-a -->\nsecond\n<!-- end: search-a -->\n\n<!-- more: search -->\nrest\n";
        assert_eq!(two, expected);
        let again = replace_or_add(&two, "search", "a-1", "third").unwrap();
        assert_eq!(again, expected.replace("first", "third"));
        let error = replace_or_add(page, "learning", "a", "x").unwrap_err();
        assert_eq!(error.to_string(), "no marker <!-- more: learning -->");
    }

    #[test]
    fn markers_that_do_not_pair_are_refused() {
        for (page, why) in [
            ("no markers", "no marker <!-- begin: a -->"),
            (
                "<!-- begin: a -->\nnever ended",
                "no marker <!-- end: a -->",
            ),
            (
                "<!-- end: a --> <!-- begin: a -->",
                "no marker <!-- end: a -->",
            ),
            (
                "<!-- begin: a --> <!-- begin: a --> <!-- end: a -->",
                "two markers",
            ),
            (
                "<!-- begin: a --> <!-- begin: b --> <!-- end: a -->",
                "another begin marker",
            ),
            ("<!-- begin: a", "has no -->"),
        ] {
            let error = format!("{:#}", replace(page, "a", "x").unwrap_err());
            assert!(error.contains(why), "{page}: {error}");
        }
    }
}
