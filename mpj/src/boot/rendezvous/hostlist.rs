//! Slurm host lists, such as `rack[1-2,7]n01,login`.

/// Returns the first host of a list, or `None` if it is malformed. The rest of the list is not checked.
pub fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(ranges) = rest[end..].strip_prefix('[') else { break };
        let (ranges, tail) = ranges.split_once(']')?;
        // The digits of the first range, with their leading zeros.
        let first = ranges.split([',', '-']).next()?;
        if first.is_empty() || !first.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        host.push_str(first);
        rest = tail;
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (!host.is_empty() && host.chars().all(is_name)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_host_of_a_list_is_expanded() {
        for (list, first) in [
            ("n0", "n0"),
            ("n0,n1", "n0"),
            ("n[0-3,7]", "n0"),
            ("n[007-101],x", "n007"),
            ("rack[2-3]n[04,05]-ib.site.org,n1", "rack2n04-ib.site.org"),
            ("a-b_c[9]", "a-b_c9"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        for list in ["", ",", "n[", "n[]", "n[a]", "n[-3]", "n]", "n 1", "n[1]]", "[,]"] {
            assert_eq!(first_host(list), None, "{list}");
        }
    }
}
