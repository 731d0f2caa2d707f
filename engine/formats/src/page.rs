//! Pages of reports: one file each, without scripts and without anything from elsewhere.

use crate::plot::escape;

/// Tables, charts of [`plot`](crate::plot), legends, and lists side by side, on light and on dark.
const STYLE: &str = "
:root{color-scheme:light dark;--line:#8883;--soft:#8882}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}small{opacity:.7}
svg{width:100%;max-width:720px;height:auto;font:11px system-ui,sans-serif}svg text{fill:currentColor}
.grid{stroke:currentColor;opacity:.15}.mark{stroke:currentColor;opacity:.4}.use{width:128px;height:32px;background:var(--soft)}
.legend span{margin-right:1.2rem}.legend i{display:inline-block;width:26px;margin-right:.4rem;vertical-align:middle}
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:1rem}.right{background:#2a9d5c33}
ol{margin:.2rem 0;padding-left:1.6rem}li{overflow-wrap:anywhere;padding:.1rem .3rem}code{font-size:.85em}
";

/// Returns a page. `body` is HTML; title and heading are text.
pub fn page(title: &str, heading: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head><body><h1>{}</h1>{body}</body></html>\n",
        escape(title),
        escape(heading)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_text_and_the_body_is_html() {
        let page = page("a < b", "x & y", "<p>fine</p>");
        assert!(page.contains("<title>a &lt; b</title>") && page.contains("<h1>x &amp; y</h1>"));
        assert!(page.ends_with("<p>fine</p></body></html>\n"));
    }
}
